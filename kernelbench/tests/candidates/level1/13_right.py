# right: one CUDA kernel, blocks of 128 x 128 in shared memory, 8 x 8 sums a thread, in single precision
# problem: level1/13
# ours: passed
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

CUDA = r"""
#include <torch/extension.h>

constexpr int TILE = 128, DEPTH = 8, PER = 8;

__global__ __launch_bounds__(256) void multiply(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ c, int n) {
    __shared__ float left[2][DEPTH][TILE + 4], right[2][DEPTH][TILE];
    const int t = threadIdx.x, row0 = blockIdx.y * TILE, col0 = blockIdx.x * TILE;
    const int load_row = t / 2, load_k = t % 2 * 4, load_depth = t / 32, load_col = t % 32 * 4;
    const int my_row = t / 16 * 4, my_col = t % 16 * 4;
    const float* from_a = a + (size_t)(row0 + load_row) * n + load_k;
    const float* from_b = b + (size_t)load_depth * n + col0 + load_col;
    float4 next_a = *reinterpret_cast<const float4*>(from_a), next_b = *reinterpret_cast<const float4*>(from_b);
    float sum[PER][PER] = {};
    for (int k = 0, side = 0; k < n; k += DEPTH, side ^= 1) {
        left[side][load_k][load_row] = next_a.x;
        left[side][load_k + 1][load_row] = next_a.y;
        left[side][load_k + 2][load_row] = next_a.z;
        left[side][load_k + 3][load_row] = next_a.w;
        *reinterpret_cast<float4*>(&right[side][load_depth][load_col]) = next_b;
        __syncthreads();
        if (k + DEPTH < n) {
            next_a = *reinterpret_cast<const float4*>(from_a + k + DEPTH);
            next_b = *reinterpret_cast<const float4*>(from_b + (size_t)(k + DEPTH) * n);
        }
#pragma unroll
        for (int d = 0; d < DEPTH; d++) {
            float x[PER], y[PER];
            *reinterpret_cast<float4*>(x) = *reinterpret_cast<float4*>(&left[side][d][my_row]);
            *reinterpret_cast<float4*>(x + 4) = *reinterpret_cast<float4*>(&left[side][d][my_row + 64]);
            *reinterpret_cast<float4*>(y) = *reinterpret_cast<float4*>(&right[side][d][my_col]);
            *reinterpret_cast<float4*>(y + 4) = *reinterpret_cast<float4*>(&right[side][d][my_col + 64]);
#pragma unroll
            for (int i = 0; i < PER; i++)
#pragma unroll
                for (int j = 0; j < PER; j++) sum[i][j] += x[i] * y[j];
        }
    }
#pragma unroll
    for (int i = 0; i < PER; i++) {
        float* to = c + (size_t)(row0 + my_row + i % 4 + i / 4 * 64) * n + col0 + my_col;
        *reinterpret_cast<float4*>(to) = make_float4(sum[i][0], sum[i][1], sum[i][2], sum[i][3]);
        *reinterpret_cast<float4*>(to + 64) = make_float4(sum[i][4], sum[i][5], sum[i][6], sum[i][7]);
    }
}

torch::Tensor product(torch::Tensor a, torch::Tensor b) {
    const int n = a.size(0);
    TORCH_CHECK(a.is_contiguous() && b.is_contiguous() && n % TILE == 0 && a.sizes() == b.sizes(), "square, in whole tiles");
    auto c = torch::empty_like(a);
    multiply<<<dim3(n / TILE, n / TILE), 256>>>(a.data_ptr<float>(), b.data_ptr<float>(), c.data_ptr<float>(), n);
    return c;
}
"""

module = load_inline(
    name="symmetric_product",
    cpp_sources="torch::Tensor product(torch::Tensor a, torch::Tensor b);",
    cuda_sources=CUDA,
    functions=["product"],
    extra_cuda_cflags=["-O3"],
)


class ModelNew(nn.Module):
    def forward(self, A, B):
        return module.product(A, B)
