import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

cuda_source = r"""
#include <torch/types.h>
#include <cuda_runtime.h>
#include <c10/cuda/CUDAStream.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAException.h>

namespace {

constexpr int ROWS = 32768;
constexpr int COLS = 32768;
constexpr int THREADS = 256;
constexpr int WARPS = THREADS / 32;
constexpr int VECS = 4;                               // float4 values per thread and tile
constexpr int TILE = THREADS * VECS;                  // float4 values per tile
constexpr int TILES = COLS / 4 / TILE;
static_assert(TILES * TILE * 4 == COLS, "tiles fit exactly");
static_assert(WARPS == 8, "the sums of the warps are read as two float4");

// One block scans one row, tile by tile, and loads the next tile meanwhile.
// Within a tile a warp owns VECS * 128 consecutive elements.
__global__ void __launch_bounds__(THREADS, 4) cumsum_kernel(const float4* __restrict__ x,
                                                            float4* __restrict__ y) {
    __shared__ __align__(16) float wsum[2][WARPS];
    const int lane = threadIdx.x & 31;
    const int warp = threadIdx.x >> 5;
    const size_t base = (size_t)blockIdx.x * (COLS / 4) + warp * (VECS * 32) + lane;
    const float4* src = x + base;
    float4* dst = y + base;

    float4 cur[VECS];
    float4 nxt[VECS];
#pragma unroll
    for (int k = 0; k < VECS; ++k) {
        cur[k] = __ldcs(src + k * 32);
        nxt[k] = cur[k];
    }

    float carry = 0.0f;
#pragma unroll
    for (int t = 0; t < TILES; ++t) {
        if (t + 1 < TILES) {
#pragma unroll
            for (int k = 0; k < VECS; ++k) nxt[k] = __ldcs(src + (t + 1) * TILE + k * 32);
        }
        float incl[VECS];
#pragma unroll
        for (int k = 0; k < VECS; ++k) {
            cur[k].y += cur[k].x;
            cur[k].z += cur[k].y;
            cur[k].w += cur[k].z;
            incl[k] = cur[k].w;
        }
#pragma unroll
        for (int o = 1; o < 32; o <<= 1) {
#pragma unroll
            for (int k = 0; k < VECS; ++k) {
                const float n = __shfl_up_sync(0xffffffffu, incl[k], o);
                if (lane >= o) incl[k] += n;
            }
        }
        float excl[VECS];
        float run = 0.0f;
#pragma unroll
        for (int k = 0; k < VECS; ++k) {
            const float total = __shfl_sync(0xffffffffu, incl[k], 31);
            const float before = __shfl_up_sync(0xffffffffu, incl[k], 1);
            excl[k] = run + (lane == 0 ? 0.0f : before);
            run += total;
        }
        if (lane == 0) wsum[t & 1][warp] = run;
        __syncthreads();
        const float4 a = *reinterpret_cast<const float4*>(&wsum[t & 1][0]);
        const float4 b = *reinterpret_cast<const float4*>(&wsum[t & 1][4]);
        float pre = 0.0f;
        if (warp > 0) pre += a.x;
        if (warp > 1) pre += a.y;
        if (warp > 2) pre += a.z;
        if (warp > 3) pre += a.w;
        if (warp > 4) pre += b.x;
        if (warp > 5) pre += b.y;
        if (warp > 6) pre += b.z;
        pre += carry;
        carry += ((a.x + a.y) + (a.z + a.w)) + ((b.x + b.y) + (b.z + b.w));
#pragma unroll
        for (int k = 0; k < VECS; ++k) {
            const float add = pre + excl[k];
            float4 r;
            r.x = cur[k].x + add;
            r.y = cur[k].y + add;
            r.z = cur[k].z + add;
            r.w = cur[k].w + add;
            __stcs(dst + t * TILE + k * 32, r);
            cur[k] = nxt[k];
        }
    }
}

}  // namespace

torch::Tensor cumsum_forward(torch::Tensor x) {
    TORCH_CHECK(x.is_cuda() && x.is_contiguous() && x.scalar_type() == torch::kFloat32,
                "expected a contiguous float32 CUDA tensor");
    TORCH_CHECK(x.dim() == 2 && x.size(0) == ROWS && x.size(1) == COLS, "unexpected shape");
    const c10::cuda::CUDAGuard guard(x.device());
    torch::Tensor y = torch::empty_like(x);
    cudaStream_t stream = c10::cuda::getCurrentCUDAStream().stream();
    cumsum_kernel<<<ROWS, THREADS, 0, stream>>>(
        reinterpret_cast<const float4*>(x.data_ptr<float>()),
        reinterpret_cast<float4*>(y.data_ptr<float>()));
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return y;
}
"""

cpp_source = "torch::Tensor cumsum_forward(torch::Tensor x);"

cumsum_ext = load_inline(
    name="cumsum_rows_ext",
    cpp_sources=cpp_source,
    cuda_sources=cuda_source,
    functions=["cumsum_forward"],
    extra_cuda_cflags=["-O3"],
    verbose=False,
)


class ModelNew(nn.Module):
    def __init__(self, dim):
        super(ModelNew, self).__init__()
        self.dim = dim

    def forward(self, x):
        return cumsum_ext.cumsum_forward(x)
