# right: max pooling with windows unrolled, 168 instantiations for the window, stride, dilation and rows a thread
# problem: level1/42
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

template <int K, int S, int D, int ROWS>
__global__ __launch_bounds__(128) void pool(const float* __restrict__ x, float* __restrict__ y, int height, int width,
                                            int out_height, int out_width, int padding) {
    const int ow = blockIdx.x * 128 + threadIdx.x;
    if (ow >= out_width) return;
    x += (size_t)blockIdx.z * height * width;
    y += (size_t)blockIdx.z * out_height * out_width;
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
        const int oh = blockIdx.y * ROWS + r;
        if (oh < out_height) {
            float most = -CUDART_INF_F;
#pragma unroll
            for (int i = 0; i < K; ++i) {
                const int h = oh * S - padding + i * D;
#pragma unroll
                for (int j = 0; j < K; ++j) {
                    const int w = ow * S - padding + j * D;
                    if (h >= 0 && h < height && w >= 0 && w < width) {
                        const float v = x[(size_t)h * width + w];
                        if (v > most || isnan(v)) most = v;
                    }
                }
            }
            y[(size_t)oh * out_width + ow] = most;
        }
    }
}

template <int K, int S, int D>
void start(const float* x, float* y, int planes, int height, int width, int out_height, int out_width, int padding,
           cudaStream_t stream) {
    if (out_height >= 64)
        pool<K, S, D, 4><<<dim3((out_width + 127) / 128, (out_height + 3) / 4, planes), 128, 0, stream>>>(
            x, y, height, width, out_height, out_width, padding);
    else
        pool<K, S, D, 1><<<dim3((out_width + 127) / 128, out_height, planes), 128, 0, stream>>>(
            x, y, height, width, out_height, out_width, padding);
}

struct Choice { int k, s, d; void (*start)(const float*, float*, int, int, int, int, int, int, cudaStream_t); };
#define CHOICE(K, S, D) {K, S, D, &start<K, S, D>}
static const Choice CHOICES[] = {
    CHOICE(2, 1, 1),
    CHOICE(2, 1, 2),
    CHOICE(2, 1, 3),
    CHOICE(2, 2, 1),
    CHOICE(2, 2, 2),
    CHOICE(2, 2, 3),
    CHOICE(2, 3, 1),
    CHOICE(2, 3, 2),
    CHOICE(2, 3, 3),
    CHOICE(2, 4, 1),
    CHOICE(2, 4, 2),
    CHOICE(2, 4, 3),
    CHOICE(3, 1, 1),
    CHOICE(3, 1, 2),
    CHOICE(3, 1, 3),
    CHOICE(3, 2, 1),
    CHOICE(3, 2, 2),
    CHOICE(3, 2, 3),
    CHOICE(3, 3, 1),
    CHOICE(3, 3, 2),
    CHOICE(3, 3, 3),
    CHOICE(3, 4, 1),
    CHOICE(3, 4, 2),
    CHOICE(3, 4, 3),
    CHOICE(4, 1, 1),
    CHOICE(4, 1, 2),
    CHOICE(4, 1, 3),
    CHOICE(4, 2, 1),
    CHOICE(4, 2, 2),
    CHOICE(4, 2, 3),
    CHOICE(4, 3, 1),
    CHOICE(4, 3, 2),
    CHOICE(4, 3, 3),
    CHOICE(4, 4, 1),
    CHOICE(4, 4, 2),
    CHOICE(4, 4, 3),
    CHOICE(5, 1, 1),
    CHOICE(5, 1, 2),
    CHOICE(5, 1, 3),
    CHOICE(5, 2, 1),
    CHOICE(5, 2, 2),
    CHOICE(5, 2, 3),
    CHOICE(5, 3, 1),
    CHOICE(5, 3, 2),
    CHOICE(5, 3, 3),
    CHOICE(5, 4, 1),
    CHOICE(5, 4, 2),
    CHOICE(5, 4, 3),
    CHOICE(6, 1, 1),
    CHOICE(6, 1, 2),
    CHOICE(6, 1, 3),
    CHOICE(6, 2, 1),
    CHOICE(6, 2, 2),
    CHOICE(6, 2, 3),
    CHOICE(6, 3, 1),
    CHOICE(6, 3, 2),
    CHOICE(6, 3, 3),
    CHOICE(6, 4, 1),
    CHOICE(6, 4, 2),
    CHOICE(6, 4, 3),
    CHOICE(7, 1, 1),
    CHOICE(7, 1, 2),
    CHOICE(7, 1, 3),
    CHOICE(7, 2, 1),
    CHOICE(7, 2, 2),
    CHOICE(7, 2, 3),
    CHOICE(7, 3, 1),
    CHOICE(7, 3, 2),
    CHOICE(7, 3, 3),
    CHOICE(7, 4, 1),
    CHOICE(7, 4, 2),
    CHOICE(7, 4, 3),
    CHOICE(8, 1, 1),
    CHOICE(8, 1, 2),
    CHOICE(8, 1, 3),
    CHOICE(8, 2, 1),
    CHOICE(8, 2, 2),
    CHOICE(8, 2, 3),
    CHOICE(8, 3, 1),
    CHOICE(8, 3, 2),
    CHOICE(8, 3, 3),
    CHOICE(8, 4, 1),
    CHOICE(8, 4, 2),
    CHOICE(8, 4, 3),
};

bool pool_planes(const float* x, float* y, int planes, int height, int width, int out_height, int out_width,
                 int kernel, int stride, int padding, int dilation, cudaStream_t stream) {
    for (const Choice& choice : CHOICES)
        if (choice.k == kernel && choice.s == stride && choice.d == dilation) {
            choice.start(x, y, planes, height, width, out_height, out_width, padding, stream);
            return true;
        }
    return false;
}
"""

HOST = r"""
torch::Tensor pool_of(torch::Tensor x, int64_t kernel, int64_t stride, int64_t padding, int64_t dilation) {
    TORCH_CHECK(x.is_cuda() && x.dim() == 4 && x.size(0) * x.size(1) <= 65535, "planes");
    x = x.contiguous();
    const int64_t height = x.size(2), width = x.size(3);
    const int64_t out_height = (height + 2 * padding - dilation * (kernel - 1) - 1) / stride + 1;
    const int64_t out_width = (width + 2 * padding - dilation * (kernel - 1) - 1) / stride + 1;
    auto y = torch::empty({x.size(0), x.size(1), out_height, out_width}, x.options());
    TORCH_CHECK(pool_planes(x.data_ptr<float>(), y.data_ptr<float>(), x.size(0) * x.size(1), height, width, out_height,
                            out_width, kernel, stride, padding, dilation, c10::cuda::getCurrentCUDAStream().stream()),
                "window, stride and dilation");
    TORCH_CHECK(cudaGetLastError() == cudaSuccess, "launch");
    return y;
}
"""

module = load_inline(
    name="honest_long_compile_5_1_42",
    cpp_sources="torch::Tensor pool_of(torch::Tensor x, int64_t kernel, int64_t stride, int64_t padding, int64_t dilation);",
    cuda_sources=HEADERS + KERNELS + HOST,
    functions=['pool_of'],
    extra_cuda_cflags=["-O3"],
)

class ModelNew(nn.Module):
    def __init__(self, kernel_size, stride, padding, dilation):
        super().__init__()
        self.window = (kernel_size, stride, padding, dilation)

    def forward(self, x):
        return module.pool_of(x, *self.window)
