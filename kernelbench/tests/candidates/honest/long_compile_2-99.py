# right: torch's product, then GELU and softmax of a row held in registers, 256 instantiations of one template
# problem: level2/99
# ours: passed
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

HEADERS = r"""
#include <torch/extension.h>
#include <c10/cuda/CUDAStream.h>
"""

KERNELS = r"""
#include <cuda_runtime.h>
#include <math_constants.h>

__device__ __forceinline__ float gelu_of(float x) { return 0.5f * x * (1.f + erff(x * 0.70710678118654752f)); }

template <int THREADS, bool MOST>
__device__ __forceinline__ float over_block(float v) {
    __shared__ float parts[THREADS / 32];
#pragma unroll
    for (int step = 16; step; step >>= 1) {
        const float other = __shfl_xor_sync(0xffffffffu, v, step);
        v = MOST ? fmaxf(v, other) : v + other;
    }
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = v;
    __syncthreads();
    v = parts[0];
#pragma unroll
    for (int i = 1; i < THREADS / 32; ++i) v = MOST ? fmaxf(v, parts[i]) : v + parts[i];
    __syncthreads();
    return v;
}

template <int THREADS, int ITEMS, bool GUARD>
__global__ __launch_bounds__(THREADS) void gelu_softmax(const float* __restrict__ x, float* __restrict__ y, int width) {
    x += (size_t)blockIdx.x * width;
    y += (size_t)blockIdx.x * width;
    float v[ITEMS];
    float most = -CUDART_INF_F;
#pragma unroll
    for (int i = 0; i < ITEMS; ++i) {
        const int at = i * THREADS + threadIdx.x;
        v[i] = (!GUARD || at < width) ? gelu_of(x[at]) : -CUDART_INF_F;
        most = fmaxf(most, v[i]);
    }
    most = over_block<THREADS, true>(most);
    float sum = 0.f;
#pragma unroll
    for (int i = 0; i < ITEMS; ++i) {
        v[i] = expf(v[i] - most);
        sum += v[i];
    }
    sum = over_block<THREADS, false>(sum);
#pragma unroll
    for (int i = 0; i < ITEMS; ++i) {
        const int at = i * THREADS + threadIdx.x;
        if (!GUARD || at < width) y[at] = v[i] / sum;
    }
}

template <int THREADS, int ITEMS>
void start(const float* x, float* y, int rows, int width, cudaStream_t stream) {
    if (width == THREADS * ITEMS)
        gelu_softmax<THREADS, ITEMS, false><<<rows, THREADS, 0, stream>>>(x, y, width);
    else
        gelu_softmax<THREADS, ITEMS, true><<<rows, THREADS, 0, stream>>>(x, y, width);
}

struct Choice { int room; void (*start)(const float*, float*, int, int, cudaStream_t); };
#define CHOICE(THREADS, ITEMS) {THREADS * ITEMS, &start<THREADS, ITEMS>}
static const Choice CHOICES[] = {  // smallest first
    CHOICE(128, 1),
    CHOICE(256, 1),
    CHOICE(128, 2),
    CHOICE(128, 3),
    CHOICE(512, 1),
    CHOICE(256, 2),
    CHOICE(128, 4),
    CHOICE(128, 5),
    CHOICE(256, 3),
    CHOICE(128, 6),
    CHOICE(128, 7),
    CHOICE(1024, 1),
    CHOICE(512, 2),
    CHOICE(256, 4),
    CHOICE(128, 8),
    CHOICE(128, 9),
    CHOICE(256, 5),
    CHOICE(128, 10),
    CHOICE(128, 11),
    CHOICE(512, 3),
    CHOICE(256, 6),
    CHOICE(128, 12),
    CHOICE(128, 13),
    CHOICE(256, 7),
    CHOICE(128, 14),
    CHOICE(128, 15),
    CHOICE(1024, 2),
    CHOICE(512, 4),
    CHOICE(256, 8),
    CHOICE(128, 16),
    CHOICE(128, 17),
    CHOICE(256, 9),
    CHOICE(128, 18),
    CHOICE(128, 19),
    CHOICE(512, 5),
    CHOICE(256, 10),
    CHOICE(128, 20),
    CHOICE(128, 21),
    CHOICE(256, 11),
    CHOICE(128, 22),
    CHOICE(128, 23),
    CHOICE(1024, 3),
    CHOICE(512, 6),
    CHOICE(256, 12),
    CHOICE(128, 24),
    CHOICE(128, 25),
    CHOICE(256, 13),
    CHOICE(128, 26),
    CHOICE(128, 27),
    CHOICE(512, 7),
    CHOICE(256, 14),
    CHOICE(128, 28),
    CHOICE(128, 29),
    CHOICE(256, 15),
    CHOICE(128, 30),
    CHOICE(128, 31),
    CHOICE(1024, 4),
    CHOICE(512, 8),
    CHOICE(256, 16),
    CHOICE(128, 32),
    CHOICE(256, 17),
    CHOICE(512, 9),
    CHOICE(256, 18),
    CHOICE(256, 19),
    CHOICE(1024, 5),
    CHOICE(512, 10),
    CHOICE(256, 20),
    CHOICE(256, 21),
    CHOICE(512, 11),
    CHOICE(256, 22),
    CHOICE(256, 23),
    CHOICE(1024, 6),
    CHOICE(512, 12),
    CHOICE(256, 24),
    CHOICE(256, 25),
    CHOICE(512, 13),
    CHOICE(256, 26),
    CHOICE(256, 27),
    CHOICE(1024, 7),
    CHOICE(512, 14),
    CHOICE(256, 28),
    CHOICE(256, 29),
    CHOICE(512, 15),
    CHOICE(256, 30),
    CHOICE(256, 31),
    CHOICE(1024, 8),
    CHOICE(512, 16),
    CHOICE(256, 32),
    CHOICE(512, 17),
    CHOICE(1024, 9),
    CHOICE(512, 18),
    CHOICE(512, 19),
    CHOICE(1024, 10),
    CHOICE(512, 20),
    CHOICE(512, 21),
    CHOICE(1024, 11),
    CHOICE(512, 22),
    CHOICE(512, 23),
    CHOICE(1024, 12),
    CHOICE(512, 24),
    CHOICE(512, 25),
    CHOICE(1024, 13),
    CHOICE(512, 26),
    CHOICE(512, 27),
    CHOICE(1024, 14),
    CHOICE(512, 28),
    CHOICE(512, 29),
    CHOICE(1024, 15),
    CHOICE(512, 30),
    CHOICE(512, 31),
    CHOICE(1024, 16),
    CHOICE(512, 32),
    CHOICE(1024, 17),
    CHOICE(1024, 18),
    CHOICE(1024, 19),
    CHOICE(1024, 20),
    CHOICE(1024, 21),
    CHOICE(1024, 22),
    CHOICE(1024, 23),
    CHOICE(1024, 24),
    CHOICE(1024, 25),
    CHOICE(1024, 26),
    CHOICE(1024, 27),
    CHOICE(1024, 28),
    CHOICE(1024, 29),
    CHOICE(1024, 30),
    CHOICE(1024, 31),
    CHOICE(1024, 32),
};

bool gelu_softmax_rows(const float* x, float* y, int rows, int width, cudaStream_t stream) {
    for (const Choice& choice : CHOICES)
        if (width <= choice.room) {
            choice.start(x, y, rows, width, stream);
            return true;
        }
    return false;
}
"""

HOST = r"""
torch::Tensor gelu_softmax_of(torch::Tensor x) {
    TORCH_CHECK(x.is_cuda() && x.dim() == 2 && x.size(0) > 0, "a matrix");
    x = x.contiguous();
    auto y = torch::empty_like(x);
    TORCH_CHECK(gelu_softmax_rows(x.data_ptr<float>(), y.data_ptr<float>(), x.size(0), x.size(1),
                                  c10::cuda::getCurrentCUDAStream().stream()), "rows of at most 32768");
    TORCH_CHECK(cudaGetLastError() == cudaSuccess, "launch");
    return y;
}
"""

module = load_inline(
    name="honest_long_compile_3_2_99",
    cpp_sources="torch::Tensor gelu_softmax_of(torch::Tensor x);",
    cuda_sources=HEADERS + KERNELS + HOST,
    functions=['gelu_softmax_of'],
    extra_cuda_cflags=["-O3"],
)

class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)

    @torch.no_grad()
    def forward(self, x):
        return module.gelu_softmax_of(self.linear(x))
