import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

cuda_source = r"""
#include <torch/types.h>
#include <c10/cuda/CUDAStream.h>
#include <c10/cuda/CUDAException.h>
#include <cuda.h>
#include <cuda_runtime.h>
#include <cstdint>

// C = A * B, all row-major bf16, fp32 accumulation.
// Clusters of two blocks own a 256x256 tile of C (128x256 a block); the tile of B is
// shared by multicast. One producer warp group feeds two consumer warp groups (64x256 each).
constexpr int SIZE = 8192;
constexpr int BM = 128;
constexpr int BN = 256;
constexpr int BK = 64;
constexpr int STAGES = 4;
constexpr int KT = SIZE / BK;
constexpr int TM = SIZE / (2 * BM);
constexpr int TN = SIZE / BN;
constexpr int TILES = TM * TN;
constexpr int GROUP_M = 8;
constexpr int NUM_BLOCKS = 132;
constexpr int NUM_CLUSTERS = NUM_BLOCKS / 2;
constexpr uint32_t A_BYTES = BM * BK * 2;
constexpr uint32_t B_BYTES = BN * BK * 2;
constexpr uint32_t C_BYTES = 8 * 4096;
constexpr int SMEM_BYTES = STAGES * (A_BYTES + B_BYTES) + C_BYTES + 128 + 1024;
static_assert((KT / STAGES) % 2 == 0, "phases start anew with each tile");
static_assert(TM % GROUP_M == 0, "groups are whole");
static_assert(SMEM_BYTES <= 232448, "shared memory");

__device__ __forceinline__ uint32_t smem_u32(const void* p) {
    return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

__device__ __forceinline__ uint32_t cluster_rank() {
    uint32_t r;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(r));
    return r;
}

__device__ __forceinline__ void cluster_sync() {
    asm volatile("barrier.cluster.arrive.release;" ::: "memory");
    asm volatile("barrier.cluster.wait.acquire;" ::: "memory");
}

__device__ __forceinline__ void mbar_init(uint32_t bar, uint32_t count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" :: "r"(bar), "r"(count) : "memory");
}

__device__ __forceinline__ void mbar_expect_tx(uint32_t bar, uint32_t bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
                 :: "r"(bar), "r"(bytes) : "memory");
}

__device__ __forceinline__ void mbar_wait(uint32_t bar, uint32_t parity) {
    asm volatile(
        "{\n\t"
        ".reg .pred p;\n\t"
        "WAIT_LOOP:\n\t"
        "mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n\t"
        "@p bra WAIT_DONE;\n\t"
        "bra WAIT_LOOP;\n\t"
        "WAIT_DONE:\n\t"
        "}"
        :: "r"(bar), "r"(parity) : "memory");
}

// Signals the barrier at the same place in block cta of the cluster, where pred is not 0.
__device__ __forceinline__ void mbar_arrive_cluster(uint32_t bar, uint32_t cta, uint32_t pred) {
    asm volatile(
        "{\n\t"
        ".reg .pred p;\n\t"
        ".reg .b32 ra;\n\t"
        "setp.ne.u32 p, %2, 0;\n\t"
        "@p mapa.shared::cluster.u32 ra, %0, %1;\n\t"
        "@p mbarrier.arrive.shared::cluster.b64 _, [ra];\n\t"
        "}"
        :: "r"(bar), "r"(cta), "r"(pred) : "memory");
}

__device__ __forceinline__ void tma_load(uint32_t dst, const CUtensorMap* map, uint32_t bar,
                                         int x, int y) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
        " [%0], [%1, {%3, %4}], [%2];"
        :: "r"(dst), "l"(reinterpret_cast<uint64_t>(map)), "r"(bar), "r"(x), "r"(y) : "memory");
}

__device__ __forceinline__ void tma_load_multicast(uint32_t dst, const CUtensorMap* map,
                                                   uint32_t bar, int x, int y) {
    const uint16_t mask = 3;
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
        ".multicast::cluster [%0], [%1, {%3, %4}], [%2], %5;"
        :: "r"(dst), "l"(reinterpret_cast<uint64_t>(map)), "r"(bar), "r"(x), "r"(y), "h"(mask)
        : "memory");
}

__device__ __forceinline__ void tma_store(const CUtensorMap* map, uint32_t src, int x, int y) {
    asm volatile(
        "cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%2, %3}], [%1];"
        :: "l"(reinterpret_cast<uint64_t>(map)), "r"(src), "r"(x), "r"(y) : "memory");
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

__device__ __forceinline__ uint32_t pack_bf16(float lo, float hi) {
    uint32_t r;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(hi), "f"(lo));
    return r;
}

// 128-byte swizzle; strides in bytes.
__device__ __forceinline__ uint64_t make_desc(uint32_t addr, uint32_t lbo, uint32_t sbo) {
    return static_cast<uint64_t>((addr & 0x3FFFFu) >> 4)
         | (static_cast<uint64_t>(lbo >> 4) << 16)
         | (static_cast<uint64_t>(sbo >> 4) << 32)
         | (static_cast<uint64_t>(1) << 62);
}

// A is K-major, B is N-major (transposed operand).
template <int SCALE_D>
__device__ __forceinline__ void wgmma_m64n256k16(float (&d)[128], uint64_t da, uint64_t db) {
    asm volatile(
        "{\n\t"
        ".reg .pred p;\n\t"
        "setp.ne.b32 p, %130, 0;\n\t"
        "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 "
        "{"
        "%0, %1, %2, %3, %4, %5, %6, %7, "
        "%8, %9, %10, %11, %12, %13, %14, %15, "
        "%16, %17, %18, %19, %20, %21, %22, %23, "
        "%24, %25, %26, %27, %28, %29, %30, %31, "
        "%32, %33, %34, %35, %36, %37, %38, %39, "
        "%40, %41, %42, %43, %44, %45, %46, %47, "
        "%48, %49, %50, %51, %52, %53, %54, %55, "
        "%56, %57, %58, %59, %60, %61, %62, %63, "
        "%64, %65, %66, %67, %68, %69, %70, %71, "
        "%72, %73, %74, %75, %76, %77, %78, %79, "
        "%80, %81, %82, %83, %84, %85, %86, %87, "
        "%88, %89, %90, %91, %92, %93, %94, %95, "
        "%96, %97, %98, %99, %100, %101, %102, %103, "
        "%104, %105, %106, %107, %108, %109, %110, %111, "
        "%112, %113, %114, %115, %116, %117, %118, %119, "
        "%120, %121, %122, %123, %124, %125, %126, %127"
        "}, %128, %129, p, 1, 1, 0, 1;\n\t"
        "}"
        :
          "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]),
          "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),
          "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]),
          "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]),
          "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]),
          "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]),
          "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]),
          "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31]),
          "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]),
          "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]),
          "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43]),
          "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]),
          "+f"(d[48]), "+f"(d[49]), "+f"(d[50]), "+f"(d[51]),
          "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55]),
          "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59]),
          "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63]),
          "+f"(d[64]), "+f"(d[65]), "+f"(d[66]), "+f"(d[67]),
          "+f"(d[68]), "+f"(d[69]), "+f"(d[70]), "+f"(d[71]),
          "+f"(d[72]), "+f"(d[73]), "+f"(d[74]), "+f"(d[75]),
          "+f"(d[76]), "+f"(d[77]), "+f"(d[78]), "+f"(d[79]),
          "+f"(d[80]), "+f"(d[81]), "+f"(d[82]), "+f"(d[83]),
          "+f"(d[84]), "+f"(d[85]), "+f"(d[86]), "+f"(d[87]),
          "+f"(d[88]), "+f"(d[89]), "+f"(d[90]), "+f"(d[91]),
          "+f"(d[92]), "+f"(d[93]), "+f"(d[94]), "+f"(d[95]),
          "+f"(d[96]), "+f"(d[97]), "+f"(d[98]), "+f"(d[99]),
          "+f"(d[100]), "+f"(d[101]), "+f"(d[102]), "+f"(d[103]),
          "+f"(d[104]), "+f"(d[105]), "+f"(d[106]), "+f"(d[107]),
          "+f"(d[108]), "+f"(d[109]), "+f"(d[110]), "+f"(d[111]),
          "+f"(d[112]), "+f"(d[113]), "+f"(d[114]), "+f"(d[115]),
          "+f"(d[116]), "+f"(d[117]), "+f"(d[118]), "+f"(d[119]),
          "+f"(d[120]), "+f"(d[121]), "+f"(d[122]), "+f"(d[123]),
          "+f"(d[124]), "+f"(d[125]), "+f"(d[126]), "+f"(d[127])
        : "l"(da), "l"(db), "n"(SCALE_D)
        : "memory");
}

// One K step of 64: four products, committed as one group.
template <int FIRST_SCALE_D>
__device__ __forceinline__ void mma_step(float (&acc)[128], uint64_t da, uint64_t db) {
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
    wgmma_m64n256k16<FIRST_SCALE_D>(acc, da, db);
    wgmma_m64n256k16<1>(acc, da + 2, db + 128);
    wgmma_m64n256k16<1>(acc, da + 4, db + 256);
    wgmma_m64n256k16<1>(acc, da + 6, db + 384);
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

__device__ __forceinline__ void tile_origin(int t, int& m, int& n) {
    const int g = t / (GROUP_M * TN);
    const int r = t % (GROUP_M * TN);
    m = (g * GROUP_M + r % GROUP_M) * (2 * BM);
    n = (r / GROUP_M) * BN;
}

__global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(384, 1)
gemm_kernel(const __grid_constant__ CUtensorMap map_a,
            const __grid_constant__ CUtensorMap map_b,
            const __grid_constant__ CUtensorMap map_c) {
    extern __shared__ uint8_t smem_raw[];
    const uint32_t s_a = (smem_u32(smem_raw) + 1023u) & ~1023u;
    const uint32_t s_b = s_a + STAGES * A_BYTES;
    const uint32_t s_c = s_b + STAGES * B_BYTES;
    const uint32_t full = s_c + C_BYTES;
    const uint32_t empty = full + 8 * STAGES;

    const int tid = threadIdx.x;
    const int warp = __shfl_sync(0xffffffffu, tid >> 5, 0);
    const int lane = tid & 31;
    const int wg = warp >> 2;
    const uint32_t rank = cluster_rank();
    const int cluster = blockIdx.x >> 1;

    if (tid == 0) {
        for (int s = 0; s < STAGES; ++s) {
            mbar_init(full + 8 * s, 1);
            mbar_init(empty + 8 * s, 4);
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        asm volatile("prefetch.tensormap [%0];" :: "l"(reinterpret_cast<uint64_t>(&map_a)) : "memory");
        asm volatile("prefetch.tensormap [%0];" :: "l"(reinterpret_cast<uint64_t>(&map_b)) : "memory");
        asm volatile("prefetch.tensormap [%0];" :: "l"(reinterpret_cast<uint64_t>(&map_c)) : "memory");
    }
    __syncthreads();
    cluster_sync();

    if (wg == 0) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
        if (tid == 0) {
            for (int t = cluster; t < TILES; t += NUM_CLUSTERS) {
                int m0, n0;
                tile_origin(t, m0, n0);
                m0 += static_cast<int>(rank) * BM;
                n0 += static_cast<int>(rank) * (BN / 2);
                #pragma unroll 1
                for (int kt = 0; kt < KT; ++kt) {
                    const uint32_t s = kt & (STAGES - 1);
                    const uint32_t parity = ((kt / STAGES) & 1) ^ 1;
                    const uint32_t bar = full + 8 * s;
                    mbar_wait(empty + 8 * s, parity);
                    mbar_expect_tx(bar, A_BYTES + B_BYTES);
                    tma_load(s_a + s * A_BYTES, &map_a, bar, kt * BK, m0);
                    const uint32_t dst = s_b + s * B_BYTES + rank * (B_BYTES / 2);
                    tma_load_multicast(dst, &map_b, bar, n0, kt * BK);
                    tma_load_multicast(dst + B_BYTES / 4, &map_b, bar, n0 + 64, kt * BK);
                }
            }
        }
        __syncwarp();
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
        const int cw = wg - 1;
        // Two threads of a warp group signal for it, one to each block of the cluster.
        const uint32_t signal_cta = static_cast<uint32_t>(tid & 1);
        const uint32_t signal = (tid & 127) < 2 ? 1u : 0u;
        const int row_warp = cw * 64 + (warp & 3) * 16;
        const uint32_t c_buf = s_c + static_cast<uint32_t>(warp - 4) * 4096u;
        const uint32_t c_row = static_cast<uint32_t>(lane & 15) * 128u;
        const uint64_t desc_a0 = make_desc(s_a + cw * (64 * BK * 2), 16, 1024);
        const uint64_t desc_b0 = make_desc(s_b, 64 * BK * 2, 1024);

        float acc[128];
        #pragma unroll
        for (int i = 0; i < 128; ++i) acc[i] = 0.0f;

        for (int t = cluster; t < TILES; t += NUM_CLUSTERS) {
            int m0, n0;
            tile_origin(t, m0, n0);
            m0 += static_cast<int>(rank) * BM;

            // The first step overwrites the accumulators.
            mbar_wait(full, 0);
            mma_step<0>(acc, desc_a0, desc_b0);
            #pragma unroll
            for (int s = 1; s < STAGES; ++s) {
                mbar_wait(full + 8 * s, 0);
                mma_step<1>(acc, desc_a0 + static_cast<uint64_t>((s * A_BYTES) >> 4),
                            desc_b0 + static_cast<uint64_t>((s * B_BYTES) >> 4));
                // The step before this one is complete: its stage is free.
                asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
                mbar_arrive_cluster(empty + 8 * (s - 1), signal_cta, signal);
            }
            #pragma unroll 1
            for (int kb = STAGES; kb < KT; kb += STAGES) {
                const uint32_t parity = (kb / STAGES) & 1;
                #pragma unroll
                for (int s = 0; s < STAGES; ++s) {
                    mbar_wait(full + 8 * s, parity);
                    mma_step<1>(acc, desc_a0 + static_cast<uint64_t>((s * A_BYTES) >> 4),
                                desc_b0 + static_cast<uint64_t>((s * B_BYTES) >> 4));
                    asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
                    mbar_arrive_cluster(empty + 8 * ((s + STAGES - 1) & (STAGES - 1)), signal_cta, signal);
                }
            }
            asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
            #pragma unroll
            for (int i = 0; i < 128; ++i) asm volatile("" : "+f"(acc[i]) :: "memory");
            mbar_arrive_cluster(empty + 8 * (STAGES - 1), signal_cta, signal);

            // Each warp stores its 16x256 part in four pieces of 64 columns, two buffers in turn.
            #pragma unroll
            for (int c = 0; c < 4; ++c) {
                const uint32_t buf = c_buf + (c & 1) * 2048u;
                if (lane == 0) asm volatile("cp.async.bulk.wait_group.read 1;" ::: "memory");
                __syncwarp();
                #pragma unroll
                for (int p = 0; p < 4; ++p) {
                    const int j = (c * 8 + p * 2) * 4;
                    const uint32_t r0 = pack_bf16(acc[j + 0], acc[j + 1]);
                    const uint32_t r1 = pack_bf16(acc[j + 2], acc[j + 3]);
                    const uint32_t r2 = pack_bf16(acc[j + 4], acc[j + 5]);
                    const uint32_t r3 = pack_bf16(acc[j + 6], acc[j + 7]);
                    const uint32_t col = static_cast<uint32_t>((p * 2 + (lane >> 4)) ^ (lane & 7));
                    asm volatile(
                        "stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};"
                        :: "r"(buf + c_row + col * 16u), "r"(r0), "r"(r1), "r"(r2), "r"(r3)
                        : "memory");
                }
                asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
                __syncwarp();
                if (lane == 0) tma_store(&map_c, buf, n0 + c * 64, m0 + row_warp);
            }
            __syncwarp();
        }
        if (lane == 0) asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
        __syncwarp();
    }
    // No block leaves while the other may still signal its barriers.
    cluster_sync();
}

typedef CUresult (*EncodeFn)(CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*,
                             const cuuint64_t*, const cuuint64_t*, const cuuint32_t*,
                             const cuuint32_t*, CUtensorMapInterleave, CUtensorMapSwizzle,
                             CUtensorMapL2promotion, CUtensorMapFloatOOBfill);

static EncodeFn get_encode() {
    void* fn = nullptr;
    cudaDriverEntryPointQueryResult status;
    C10_CUDA_CHECK(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &fn, 12000,
                                                    cudaEnableDefault, &status));
    TORCH_CHECK(fn != nullptr && status == cudaDriverEntryPointSuccess,
                "cuTensorMapEncodeTiled not found");
    return reinterpret_cast<EncodeFn>(fn);
}

static void make_map(EncodeFn encode, CUtensorMap* map, void* ptr, uint32_t box_x, uint32_t box_y) {
    const cuuint64_t dims[2] = {SIZE, SIZE};
    const cuuint64_t strides[1] = {static_cast<cuuint64_t>(SIZE) * 2};
    const cuuint32_t box[2] = {box_x, box_y};
    const cuuint32_t elem[2] = {1, 1};
    const CUresult res = encode(map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, ptr, dims, strides, box,
                                elem, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                                CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                                CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    TORCH_CHECK(res == CUDA_SUCCESS, "cuTensorMapEncodeTiled failed: ", static_cast<int>(res));
}

torch::Tensor gemm_8192(torch::Tensor a, torch::Tensor b) {
    TORCH_CHECK(a.is_cuda() && b.is_cuda(), "inputs must be on the GPU");
    TORCH_CHECK(a.scalar_type() == at::kBFloat16 && b.scalar_type() == at::kBFloat16,
                "inputs must be bfloat16");
    TORCH_CHECK(a.is_contiguous() && b.is_contiguous() &&
                a.numel() == static_cast<int64_t>(SIZE) * SIZE &&
                b.numel() == static_cast<int64_t>(SIZE) * SIZE, "unexpected shape");
    static const EncodeFn encode = get_encode();
    static const bool configured = []() {
        C10_CUDA_CHECK(cudaFuncSetAttribute(gemm_kernel,
                                            cudaFuncAttributeMaxDynamicSharedMemorySize,
                                            SMEM_BYTES));
        return true;
    }();
    (void)configured;

    torch::Tensor c = at::empty_like(a);
    CUtensorMap map_a, map_b, map_c;
    make_map(encode, &map_a, a.data_ptr(), BK, BM);
    make_map(encode, &map_b, b.data_ptr(), 64, BK);
    make_map(encode, &map_c, c.data_ptr(), 64, 16);

    cudaStream_t stream = c10::cuda::getCurrentCUDAStream().stream();
    gemm_kernel<<<NUM_BLOCKS, 384, SMEM_BYTES, stream>>>(map_a, map_b, map_c);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return c;
}
"""

cpp_source = """
torch::Tensor gemm_8192(torch::Tensor a, torch::Tensor b);
"""

gemm_ext = load_inline(
    name="gemm_8192_sm90a_ext",
    cpp_sources=cpp_source,
    cuda_sources=cuda_source,
    functions=["gemm_8192"],
    extra_cflags=["-O3"],
    extra_cuda_cflags=["-O3", "-gencode=arch=compute_90a,code=sm_90a"],
    verbose=False,
)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.gemm = gemm_ext.gemm_8192

    def forward(self, a, b):
        return self.gemm(a, b)
