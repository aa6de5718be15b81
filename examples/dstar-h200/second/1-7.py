import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

cuda_source = r"""
#include <torch/types.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>
#include <cuda_runtime.h>
#include <cuda_fp16.h>
#include <cstdint>

// x = hi + lo with two FP16 parts; a product needs hi*hi + hi*lo + lo*hi.
__device__ __forceinline__ void split2(float x, float y, uint32_t& hi, uint32_t& lo) {
    __half2 h = __floats2half2_rn(x, y);
    float2 f = __half22float2(h);
    __half2 l = __floats2half2_rn(x - f.x, y - f.y);
    hi = *reinterpret_cast<uint32_t*>(&h);
    lo = *reinterpret_cast<uint32_t*>(&l);
}

__device__ __forceinline__ uint32_t smem_u32(const void* p) {
    return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

__device__ __forceinline__ void named_sync(int id) {
    asm volatile("bar.sync %0, 256;" :: "r"(id) : "memory");
}
__device__ __forceinline__ void named_arrive(int id) {
    asm volatile("bar.arrive %0, 256;" :: "r"(id) : "memory");
}

__device__ __forceinline__ void wgmma_fence() {
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void wgmma_commit() {
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void wgmma_wait0() {
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
}

__device__ __forceinline__ void bulk_store(float* dst, uint32_t src, uint32_t bytes) {
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;"
                 :: "l"(__cvta_generic_to_global(dst)), "r"(src), "r"(bytes) : "memory");
}
__device__ __forceinline__ void bulk_commit() {
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}
__device__ __forceinline__ void bulk_wait_read() {
    asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
}
__device__ __forceinline__ void bulk_wait_all() {
    asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}

// K-major, 128-byte swizzle, 1024 bytes between groups of eight rows.
__device__ __forceinline__ uint64_t make_desc(uint32_t addr) {
    return 0x4000004000010000ull | static_cast<uint64_t>((addr & 0x3FFFFu) >> 4);
}

#define F4(d, i) "+f"(d[(i)]), "+f"(d[(i) + 1]), "+f"(d[(i) + 2]), "+f"(d[(i) + 3])
#define F16(d, i) F4(d, (i)), F4(d, (i) + 4), F4(d, (i) + 8), F4(d, (i) + 12)
#define F64(d, i) F16(d, (i)), F16(d, (i) + 16), F16(d, (i) + 32), F16(d, (i) + 48)

constexpr int M_TOTAL = 32768;
constexpr int N_TOTAL = 32768;
constexpr int K_TOTAL = 64;
constexpr int STRIP = 256;
constexpr int B_BYTES = 65536;
constexpr int ST_STRIDE = 1056;
constexpr int ST_BYTES = 16 * ST_STRIDE;
constexpr int SMEM_BYTES = B_BYTES + 8 * ST_BYTES + 1024;
constexpr int ITERS = M_TOTAL / 128;

__device__ __forceinline__ void wgmma_n256(float (&d)[128], const uint32_t (&a)[4], uint64_t desc, int scale_d) {
    asm volatile(
        "{\n"
        ".reg .pred p;\n"
        "setp.ne.b32 p, %133, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n256k16.f32.f16.f16 "
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
        "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
        "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, "
        "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "
        "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, "
        "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, "
        "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127}, "
        "{%128, %129, %130, %131}, "
        "%132, p, 1, 1, 0;\n"
        "}\n"
        : F64(d, 0), F64(d, 64)
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(desc), "r"(scale_d));
}

// A thread holds k = 16s + 4q .. 16s + 4q + 3 of two rows, eight rows apart.
__device__ __forceinline__ void load_rows(const float* __restrict__ a, float4 (&u)[4], float4 (&v)[4]) {
#pragma unroll
    for (int s = 0; s < 4; ++s) {
        u[s] = __ldg(reinterpret_cast<const float4*>(a + 16 * s));
        v[s] = __ldg(reinterpret_cast<const float4*>(a + 8 * K_TOTAL + 16 * s));
    }
}

__device__ __forceinline__ void pin_frags(uint32_t (&x)[4][4]) {
#pragma unroll
    for (int s = 0; s < 4; ++s) {
#pragma unroll
        for (int i = 0; i < 4; ++i) asm volatile("" : "+r"(x[s][i]) :: "memory");
    }
}

// A block keeps 256 columns of B, split, in shared memory and walks down the rows of A.
// Its two warpgroups make 64 x 256 outputs each: one multiplies while the other stores.
__global__ void __launch_bounds__(256, 1)
gemm_kernel(const float* __restrict__ A, const float* __restrict__ B, float* __restrict__ out) {
    extern __shared__ uint8_t smem_raw[];
    const uint32_t raw = smem_u32(smem_raw);
    uint8_t* smem = smem_raw + ((1024u - (raw & 1023u)) & 1023u);
    const int t = threadIdx.x;
    const int w = t >> 7;
    const int lane = t & 31;
    const int warp = (t >> 5) & 3;
    const int q = lane & 3;
    const int g = lane >> 2;
    const int n0 = blockIdx.x * STRIP;

    // A row of 128 bytes holds 32 hi parts, then 32 lo parts of one column of B,
    // k in the order in which the threads hold A, its 16-byte pieces swizzled for wgmma.
#pragma unroll
    for (int kc = 0; kc < 2; ++kc) {
        const float* s = B + static_cast<size_t>(kc * 32) * N_TOTAL + n0 + t;
        float v[32];
#pragma unroll
        for (int k = 0; k < 32; ++k) v[k] = __ldg(s + static_cast<size_t>(k) * N_TOTAL);
        uint4* rowp = reinterpret_cast<uint4*>(smem + kc * 32768 + t * 128);
#pragma unroll
        for (int c = 0; c < 4; ++c) {
            uint32_t h[4], l[4];
#pragma unroll
            for (int p = 0; p < 4; ++p) {
                split2(v[16 * (c >> 1) + 4 * p + 2 * (c & 1)], v[16 * (c >> 1) + 4 * p + 2 * (c & 1) + 1], h[p], l[p]);
            }
            rowp[c ^ (t & 7)] = make_uint4(h[0], h[1], h[2], h[3]);
            rowp[(c + 4) ^ (t & 7)] = make_uint4(l[0], l[1], l[2], l[3]);
        }
    }
    asm volatile("fence.proxy.async;" ::: "memory");
    __syncthreads();

    const uint64_t desc = make_desc(smem_u32(smem));
    uint8_t* st = smem + B_BYTES + (t >> 5) * ST_BYTES;
    uint8_t* st_w = st + g * ST_STRIDE + q * 8;
    const uint32_t st_row = smem_u32(st) + (lane & 15) * ST_STRIDE;

    const float* a_ptr = A + static_cast<size_t>(w * 64 + warp * 16 + g) * K_TOTAL + 4 * q;
    float* o_ptr = out + static_cast<size_t>(w * 64 + warp * 16 + (lane & 15)) * N_TOTAL + n0;

    float acc[128];
#pragma unroll
    for (int i = 0; i < 128; ++i) acc[i] = 0.0f;

    float4 u[4], v[4];
    load_rows(a_ptr, u, v);

    // The two warpgroups take turns at the tensor cores; warpgroup 0 has the first.
    if (w == 1) named_arrive(1);

#pragma unroll 1
    for (int it = 0; it < ITERS; ++it) {
        uint32_t hi[4][4], lo[4][4];
#pragma unroll
        for (int s = 0; s < 4; ++s) {
            split2(u[s].x, u[s].y, hi[s][0], lo[s][0]);
            split2(v[s].x, v[s].y, hi[s][1], lo[s][1]);
            split2(u[s].z, u[s].w, hi[s][2], lo[s][2]);
            split2(v[s].z, v[s].w, hi[s][3], lo[s][3]);
        }
        // The next rows arrive while this tile is multiplied and stored.
        if (it + 1 < ITERS) a_ptr += 128 * K_TOTAL;
        load_rows(a_ptr, u, v);

        named_sync(1 + w);
        wgmma_fence();
        // The small products first.
#pragma unroll
        for (int s = 0; s < 4; ++s) wgmma_n256(acc, lo[s], desc + (s >> 1) * 2048 + (s & 1) * 2, s == 0 ? 0 : 1);
#pragma unroll
        for (int s = 0; s < 4; ++s) wgmma_n256(acc, hi[s], desc + (s >> 1) * 2048 + (s & 1) * 2 + 4, 1);
#pragma unroll
        for (int s = 0; s < 4; ++s) wgmma_n256(acc, hi[s], desc + (s >> 1) * 2048 + (s & 1) * 2, 1);
        wgmma_commit();
        named_arrive(2 - w);
        wgmma_wait0();
#pragma unroll
        for (int i = 0; i < 128; ++i) asm volatile("" : "+f"(acc[i]) :: "memory");
        pin_frags(hi);
        pin_frags(lo);

        // Each warp stages its 16 x 256 tile; sixteen lanes each hand one row of 1024 bytes
        // to the copy engine, which writes while the next tile is multiplied.
        bulk_wait_read();
        __syncwarp();
#pragma unroll
        for (int j = 0; j < 32; ++j) {
            *reinterpret_cast<float2*>(st_w + j * 32) = make_float2(acc[j * 4], acc[j * 4 + 1]);
            *reinterpret_cast<float2*>(st_w + 8 * ST_STRIDE + j * 32) = make_float2(acc[j * 4 + 2], acc[j * 4 + 3]);
        }
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        __syncwarp();
        if (lane < 16) {
            bulk_store(o_ptr, st_row, STRIP * 4);
            bulk_commit();
        }
        o_ptr += static_cast<size_t>(128) * N_TOTAL;
    }
    if (w == 0) named_sync(1);
    bulk_wait_all();
}

torch::Tensor matmul_small_k(torch::Tensor A, torch::Tensor B) {
    TORCH_CHECK(A.is_cuda() && B.is_cuda() && A.is_contiguous() && B.is_contiguous(), "contiguous CUDA tensors expected");
    TORCH_CHECK(A.scalar_type() == torch::kFloat32 && B.scalar_type() == torch::kFloat32, "float32 expected");
    TORCH_CHECK(A.numel() == 32768ll * 64 && B.numel() == 64ll * 32768, "unexpected shape");
    auto out = torch::empty({M_TOTAL, N_TOTAL}, A.options());
    cudaStream_t stream = at::cuda::getCurrentCUDAStream().stream();
    static bool configured = false;
    if (!configured) {
        C10_CUDA_CHECK(cudaFuncSetAttribute(reinterpret_cast<const void*>(gemm_kernel),
                                            cudaFuncAttributeMaxDynamicSharedMemorySize, SMEM_BYTES));
        configured = true;
    }
    gemm_kernel<<<N_TOTAL / STRIP, 256, SMEM_BYTES, stream>>>(
        A.data_ptr<float>(), B.data_ptr<float>(), out.data_ptr<float>());
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}
"""

cpp_source = r"""
torch::Tensor matmul_small_k(torch::Tensor A, torch::Tensor B);
"""

_ext = load_inline(
    name="matmul_small_k_fp16x3_ext",
    cpp_sources=cpp_source,
    cuda_sources=cuda_source,
    functions=["matmul_small_k"],
    extra_cuda_cflags=["-O3", "-gencode=arch=compute_90a,code=sm_90a"],
    verbose=False,
)


class ModelNew(nn.Module):
    """
    Matrix product in single precision on FP16 tensor cores: each operand is split
    into two FP16 parts, three products, accumulated in single precision.
    """

    def __init__(self):
        super(ModelNew, self).__init__()

    def forward(self, A: torch.Tensor, B: torch.Tensor) -> torch.Tensor:
        return _ext.matmul_small_k(A, B)
