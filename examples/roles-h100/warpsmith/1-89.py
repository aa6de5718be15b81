import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

cuda_src = r"""
#include <torch/types.h>
#include <cuda_runtime.h>
#include <cstdint>
#include <c10/cuda/CUDAStream.h>
#include <c10/cuda/CUDAException.h>

namespace {

constexpr int COLS = 32768;
constexpr int ROW_V4 = COLS / 4;
constexpr int THREADS = 256;
constexpr int WARPS = THREADS / 32;
constexpr int V = 4;
constexpr int TILE_V4 = THREADS * V;
constexpr int TILES = ROW_V4 / TILE_V4;
constexpr int STAGES = 4;
constexpr uint32_t TILE_BYTES = TILE_V4 * 16;
constexpr int SMEM_BYTES = STAGES * (int)TILE_BYTES;

__device__ __forceinline__ uint32_t smem_u32(const void* p) {
    return (uint32_t)__cvta_generic_to_shared(p);
}

__device__ __forceinline__ void mbar_init(uint32_t bar, uint32_t count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" :: "r"(bar), "r"(count) : "memory");
}

__device__ __forceinline__ void mbar_expect_tx(uint32_t bar, uint32_t bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
                 :: "r"(bar), "r"(bytes) : "memory");
}

__device__ __forceinline__ void mbar_wait(uint32_t bar, uint32_t parity) {
    uint32_t done = 0;
    while (!done) {
        asm volatile(
            "{\n"
            ".reg .pred p;\n"
            "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
            "selp.u32 %0, 1, 0, p;\n"
            "}\n"
            : "=r"(done) : "r"(bar), "r"(parity) : "memory");
    }
}

__device__ __forceinline__ void bulk_load(uint32_t dst, const void* src, uint32_t bytes, uint32_t bar) {
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
        :: "r"(dst), "l"(src), "r"(bytes), "r"(bar) : "memory");
}

__device__ __forceinline__ void bulk_store(void* dst, uint32_t src, uint32_t bytes) {
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;"
                 :: "l"(dst), "r"(src), "r"(bytes) : "memory");
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

// One block scans one row, tile by tile, in a ring of shared memory tiles that bulk
// copies fill and write back. Each warp owns V * 32 consecutive float4 of a tile.
__global__ void __launch_bounds__(THREADS, 3)
row_cumsum_kernel(const float4* __restrict__ x, float4* __restrict__ out) {
    extern __shared__ __align__(128) float4 ring[];
    __shared__ __align__(8) uint64_t full[STAGES];
    __shared__ float wsum[2][WARPS];

    const int lane = threadIdx.x & 31;
    const int warp = threadIdx.x >> 5;
    const float4* src = x + (size_t)blockIdx.x * ROW_V4;
    float4* dst = out + (size_t)blockIdx.x * ROW_V4;
    const uint32_t ring_addr = smem_u32(ring);
    const uint32_t bar_addr = smem_u32(full);

    if (threadIdx.x == 0) {
#pragma unroll
        for (int s = 0; s < STAGES; ++s) mbar_init(bar_addr + s * 8, 1);
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#pragma unroll
        for (int s = 0; s < STAGES; ++s) {
            mbar_expect_tx(bar_addr + s * 8, TILE_BYTES);
            bulk_load(ring_addr + s * TILE_BYTES, src + s * TILE_V4, TILE_BYTES, bar_addr + s * 8);
        }
    }
    __syncthreads();

    float carry = 0.0f;
#pragma unroll
    for (int t = 0; t < TILES; ++t) {
        const int slot = t % STAGES;
        float4* tile = ring + slot * TILE_V4 + warp * (V * 32) + lane;
        mbar_wait(bar_addr + slot * 8, (uint32_t)((t / STAGES) & 1));

        float4 a[V];
#pragma unroll
        for (int v = 0; v < V; ++v) a[v] = tile[v * 32];

        float inc[V];
#pragma unroll
        for (int v = 0; v < V; ++v) {
            a[v].y += a[v].x;
            a[v].z += a[v].y;
            a[v].w += a[v].z;
            inc[v] = a[v].w;
        }
#pragma unroll
        for (int off = 1; off < 32; off <<= 1) {
#pragma unroll
            for (int v = 0; v < V; ++v) {
                float u = __shfl_up_sync(0xffffffffu, inc[v], off);
                if (lane >= off) inc[v] += u;
            }
        }
        // Exclusive offset of each float4 within the warp's segment.
        float run = 0.0f;
#pragma unroll
        for (int v = 0; v < V; ++v) {
            float ex = __shfl_up_sync(0xffffffffu, inc[v], 1);
            float tot = __shfl_sync(0xffffffffu, inc[v], 31);
            if (lane == 0) ex = 0.0f;
            inc[v] = run + ex;
            run += tot;
        }
        if (lane == 0) wsum[t & 1][warp] = run;
        __syncthreads();

        float pre = 0.0f;
        float total = 0.0f;
#pragma unroll
        for (int w = 0; w < WARPS; ++w) {
            if (w == warp) pre = total;
            total += wsum[t & 1][w];
        }
        pre += carry;
        carry += total;

#pragma unroll
        for (int v = 0; v < V; ++v) {
            const float o = pre + inc[v];
            float4 r = a[v];
            r.x += o;
            r.y += o;
            r.z += o;
            r.w += o;
            tile[v * 32] = r;
        }
        // Make the scanned tile visible to the bulk copy engine.
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        __syncthreads();

        if (threadIdx.x == 0) {
            bulk_store(dst + t * TILE_V4, ring_addr + slot * TILE_BYTES, TILE_BYTES);
            // The store of the previous tile has been read out: refill its slot.
            if (t >= 1 && t - 1 + STAGES < TILES) {
                asm volatile("cp.async.bulk.wait_group.read 1;" ::: "memory");
                const int ps = (t + STAGES - 1) % STAGES;
                mbar_expect_tx(bar_addr + ps * 8, TILE_BYTES);
                bulk_load(ring_addr + ps * TILE_BYTES, src + (t - 1 + STAGES) * TILE_V4,
                          TILE_BYTES, bar_addr + ps * 8);
            }
        }
    }
    // Shared memory must outlive the reads of the last stores.
    if (threadIdx.x == 0) {
        asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
    }
}

}  // namespace

torch::Tensor row_cumsum(torch::Tensor x) {
    TORCH_CHECK(x.is_cuda() && x.scalar_type() == torch::kFloat32 && x.is_contiguous(),
                "x must be a contiguous float32 CUDA tensor");
    TORCH_CHECK(x.dim() == 2 && x.size(1) == COLS, "unexpected shape");
    auto out = torch::empty_like(x);
    auto stream = c10::cuda::getCurrentCUDAStream();
    static bool configured = false;
    if (!configured) {
        C10_CUDA_CHECK(cudaFuncSetAttribute(
            row_cumsum_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, SMEM_BYTES));
        configured = true;
    }
    row_cumsum_kernel<<<(unsigned)x.size(0), THREADS, SMEM_BYTES, stream.stream()>>>(
        reinterpret_cast<const float4*>(x.data_ptr<float>()),
        reinterpret_cast<float4*>(out.data_ptr<float>()));
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}
"""

cpp_src = r"""
torch::Tensor row_cumsum(torch::Tensor x);
"""

cumsum_ext = load_inline(
    name="row_cumsum_32768_bulk_ext",
    cpp_sources=cpp_src,
    cuda_sources=cuda_src,
    functions=["row_cumsum"],
    extra_cuda_cflags=["-O3", "-gencode=arch=compute_90a,code=sm_90a"],
    verbose=False,
)


class ModelNew(nn.Module):
    def __init__(self, dim):
        super(ModelNew, self).__init__()
        self.dim = dim

    def forward(self, x):
        return cumsum_ext.row_cumsum(x)
