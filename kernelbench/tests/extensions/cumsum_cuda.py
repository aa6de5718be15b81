"""A cumulative sum in CUDA through packed accessors."""

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

cuda_source = r"""
#include <torch/extension.h>
#include <cuda_runtime.h>

constexpr int THREADS = 256;

template <typename scalar_t>
__global__ void cumsum_kernel(const torch::PackedTensorAccessor32<scalar_t, 2, torch::RestrictPtrTraits> x,
                              torch::PackedTensorAccessor32<scalar_t, 2, torch::RestrictPtrTraits> y) {
    __shared__ scalar_t tile[THREADS];
    scalar_t before = 0;
    const int row = blockIdx.x;
    for (int start = 0; start < x.size(1); start += THREADS) {
        const int i = start + threadIdx.x;
        tile[threadIdx.x] = i < x.size(1) ? x[row][i] : scalar_t(0);
        __syncthreads();
        for (int step = 1; step < THREADS; step <<= 1) {
            const scalar_t left = threadIdx.x >= step ? tile[threadIdx.x - step] : scalar_t(0);
            __syncthreads();
            tile[threadIdx.x] += left;
            __syncthreads();
        }
        if (i < x.size(1)) y[row][i] = before + tile[threadIdx.x];
        before += tile[THREADS - 1];
        __syncthreads();
    }
}

torch::Tensor cumsum_cuda(torch::Tensor x, int64_t dim) {
    const bool last = dim == -1 || dim == x.dim() - 1;
    torch::Tensor rows = last ? x : x.transpose(dim, -1);
    auto shape = rows.sizes().vec();
    rows = rows.contiguous().view({-1, rows.size(-1)});
    auto y = torch::empty_like(rows, torch::TensorOptions().dtype(rows.scalar_type()));
    AT_DISPATCH_FLOATING_TYPES(rows.scalar_type(), "cumsum_cuda", ([&] {
        cumsum_kernel<scalar_t><<<rows.size(0), THREADS>>>(
            rows.packed_accessor32<scalar_t, 2, torch::RestrictPtrTraits>(),
            y.packed_accessor32<scalar_t, 2, torch::RestrictPtrTraits>());
    }));
    y = y.reshape(shape);
    return last ? y : y.transpose(dim, -1).contiguous();
}
"""

extension = load_inline(
    name="cumsum_cuda_ext",
    cpp_sources=["#include <torch/extension.h>\n", "torch::Tensor cumsum_cuda(torch::Tensor x, int64_t dim);"],
    cuda_sources=[cuda_source],
    functions=["cumsum_cuda"],
    verbose=True,
)


class ModelNew(nn.Module):
    def __init__(self, dim=1):
        super().__init__()
        self.dim = dim

    def forward(self, x):
        return extension.cumsum_cuda(x, self.dim)
