import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

cuda_src = r"""
#include <torch/types.h>
#include <c10/cuda/CUDAStream.h>
#include <c10/cuda/CUDAException.h>
#include <cuda_runtime.h>
#include <stdint.h>

namespace {

constexpr int ROWS = 32768;
constexpr int COLS = 32768;
constexpr int THREADS = 256;
constexpr int WARPS = THREADS / 32;            // 8
constexpr int V = 4;                           // float4 per thread and tile
constexpr int TILE4 = THREADS * V;             // 1024 float4 per tile
constexpr int CLUSTER = COLS / 4 / TILE4;      // 8 blocks of one tile make a row
static_assert(CLUSTER == 8 && WARPS == 8, "one total per warp of the cluster, 64 in all");

// the barrier of the cluster in halves; the first arrival only says that the block runs
__device__ __forceinline__ void cluster_arrive_relaxed()
{
    asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}

__device__ __forceinline__ void cluster_arrive()
{
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}

__device__ __forceinline__ void cluster_wait()
{
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// store into the same place of another block's shared memory
__device__ __forceinline__ void store_remote(float* p, int rank, float v)
{
    const uint32_t local = (uint32_t)__cvta_generic_to_shared(p);
    uint32_t remote;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"(local), "r"(rank));
    asm volatile("st.shared::cluster.f32 [%0], %1;" :: "r"(remote), "f"(v) : "memory");
}

// A cluster of eight blocks scans one row, a tile each; the totals of the warps are exchanged once.
__global__ void __cluster_dims__(8, 1, 1) __launch_bounds__(THREADS, 6)
cumsum_kernel(const float4* __restrict__ x, float4* __restrict__ out)
{
    __shared__ float totals[CLUSTER * WARPS];

    cluster_arrive_relaxed();

    const int lane = threadIdx.x & 31;
    const int warp = threadIdx.x >> 5;
    const int rank = blockIdx.x & (CLUSTER - 1);
    const size_t base = (size_t)blockIdx.x * TILE4 + warp * (32 * V) + lane;
    const float4* xp = x + base;
    float4* op = out + base;

    float4 c[V];
#pragma unroll
    for (int j = 0; j < V; ++j) c[j] = __ldcs(xp + j * 32);

    float s[V];
#pragma unroll
    for (int j = 0; j < V; ++j) {
        c[j].y += c[j].x;
        c[j].z += c[j].y;
        c[j].w += c[j].z;
        s[j] = c[j].w;
    }
    // inclusive scans over the warp, V independent chains
#pragma unroll
    for (int off = 1; off < 32; off <<= 1) {
#pragma unroll
        for (int j = 0; j < V; ++j) {
            const float n = __shfl_up_sync(0xffffffffu, s[j], off);
            if (lane >= off) s[j] += n;
        }
    }
    float ex[V];
    float run = 0.0f;
#pragma unroll
    for (int j = 0; j < V; ++j) {
        float e = __shfl_up_sync(0xffffffffu, s[j], 1);
        const float tot = __shfl_sync(0xffffffffu, s[j], 31);
        if (lane == 0) e = 0.0f;
        ex[j] = run + e;
        run += tot;
    }

    // all blocks of the cluster run: the total of the warp goes to each of them
    cluster_wait();
    const int place = rank * WARPS + warp;
    if (lane < CLUSTER) store_remote(&totals[place], lane, run);
    __syncwarp();
    cluster_arrive();
    cluster_wait();

    // what precedes the warp in its row
    float pre = 0.0f;
    if (lane < place) pre = totals[lane];
    if (lane + 32 < place) pre += totals[lane + 32];
#pragma unroll
    for (int off = 16; off > 0; off >>= 1) pre += __shfl_xor_sync(0xffffffffu, pre, off);

#pragma unroll
    for (int j = 0; j < V; ++j) {
        const float o = pre + ex[j];
        float4 r;
        r.x = c[j].x + o;
        r.y = c[j].y + o;
        r.z = c[j].z + o;
        r.w = c[j].w + o;
        __stcs(op + j * 32, r);
    }
}

}  // namespace

torch::Tensor row_cumsum(torch::Tensor x)
{
    TORCH_CHECK(x.is_cuda() && x.scalar_type() == torch::kFloat && x.is_contiguous(),
                "x must be a contiguous float32 CUDA tensor");
    TORCH_CHECK(x.dim() == 2 && x.size(0) == ROWS && x.size(1) == COLS, "unexpected shape");
    auto out = torch::empty_like(x);
    cudaStream_t stream = c10::cuda::getCurrentCUDAStream().stream();
    cumsum_kernel<<<ROWS * CLUSTER, THREADS, 0, stream>>>(
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
    name="row_cumsum_32768_cluster_ext",
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
