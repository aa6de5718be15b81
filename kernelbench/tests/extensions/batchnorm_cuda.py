"""Batch norm in training in CUDA: statistics kept in place, several tensors by name, a launch whose status is read."""

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

cuda_source = r"""
#include <torch/all.h>
#include <c10/cuda/CUDAGuard.h>
#include <ATen/cuda/CUDAContext.h>
#include <cmath>
#include <iostream>

template <typename scalar_t>
__global__ void statistics_kernel(const scalar_t* __restrict__ x, float* mean, float* variance, int n, int c, int inner) {
    __shared__ float sums[512], squares[512];
    float sum = 0.f, square = 0.f;
    const int channel = blockIdx.x;
    for (int i = threadIdx.x; i < n * inner; i += blockDim.x) {
        const float v = x[((i / inner) * c + channel) * inner + i % inner];
        sum += v;
        square += v * v;
    }
    sums[threadIdx.x] = sum;
    squares[threadIdx.x] = square;
    __syncthreads();
    for (int s = blockDim.x / 2; s > 0; s >>= 1) {
        if (threadIdx.x < s) {
            sums[threadIdx.x] += sums[threadIdx.x + s];
            squares[threadIdx.x] += squares[threadIdx.x + s];
        }
        __syncthreads();
    }
    if (threadIdx.x == 0) {
        const float m = sums[0] / (n * inner);
        mean[channel] = m;
        variance[channel] = fmaxf(squares[0] / (n * inner) - m * m, 0.f);
    }
}

template <typename scalar_t>
__global__ void normalize_kernel(const scalar_t* __restrict__ x, const float* mean, const float* variance,
                                 const scalar_t* weight, const scalar_t* bias, scalar_t* y, int64_t total, int c, int inner,
                                 float eps) {
    for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < total; i += (int64_t)gridDim.x * blockDim.x) {
        const int channel = (i / inner) % c;
        const float scale = rsqrtf(variance[channel] + eps);
        const scalar_t v = (static_cast<float>(x[i]) - mean[channel]) * scale;
        y[i] = v * weight[channel] + bias[channel];
    }
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> batch_norm(
    const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias, at::Tensor& running_mean,
    at::Tensor& running_var, bool training, double momentum, double eps) {
    TORCH_CHECK(input.dim() >= 2, "expected at least two dimensions");
    TORCH_INTERNAL_ASSERT(input.is_cuda());
    c10::cuda::CUDAGuard device_guard(input.device());
    cudaStream_t stream = at::cuda::getCurrentCUDAStream(input.get_device());
    const auto x = input.contiguous();
    const int n = x.size(0), c = x.size(1), inner = x.numel() / (x.size(0) * x.size(1));
    const auto options = x.options().dtype(at::kFloat);
    auto mean = at::empty({c}, options), variance = at::empty({c}, options);
    auto y = at::empty_like(x);
    AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, x.scalar_type(), "batch_norm", [&] {
        if (training) {
            statistics_kernel<scalar_t><<<c, 512, 0, stream>>>(x.data_ptr<scalar_t>(), mean.data_ptr<float>(),
                                                               variance.data_ptr<float>(), n, c, inner);
            const double count = static_cast<double>(n) * inner;
            running_mean.mul_(1 - momentum).add_(mean.to(running_mean.scalar_type()) * momentum);
            running_var.mul_(1 - momentum).add_(variance.to(running_var.dtype()) * (momentum * count / (count - 1)));
        } else {
            mean.copy_(running_mean);
            variance.copy_(running_var);
        }
        const int blocks = std::min<int64_t>((x.numel() + 255) / 256, 65535);
        normalize_kernel<scalar_t><<<blocks, 256, 0, stream>>>(
            x.data_ptr<scalar_t>(), mean.data_ptr<float>(), variance.data_ptr<float>(), weight.data_ptr<scalar_t>(),
            bias.data_ptr<scalar_t>(), y.data_ptr<scalar_t>(), x.numel(), c, inner, static_cast<float>(eps));
    });
    cudaError_t err = cudaGetLastError();
    if (err != cudaSuccess) {
        std::cerr << "kernel: " << cudaGetErrorString(err) << std::endl;
        throw std::runtime_error("batch_norm failed");
    }
    return std::make_tuple(y, mean, variance);
}
"""

cpp_source = """
#include <torch/extension.h>
std::tuple<at::Tensor, at::Tensor, at::Tensor> batch_norm(
    const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias, at::Tensor& running_mean,
    at::Tensor& running_var, bool training, double momentum, double eps);

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
    m.def("batch_norm", &batch_norm, "Batch norm (CUDA)", py::arg("input"), py::arg("weight"), py::arg("bias"),
          py::arg("running_mean"), py::arg("running_var"), py::arg("training") = true, py::arg("momentum") = 0.1,
          py::arg("eps") = 1e-5);
}
"""

extension = load_inline(
    name="batchnorm_cuda",
    cpp_sources=cpp_source,
    cuda_sources=cuda_source,
    extra_cflags=["-O3", "-std=c++17"],
    extra_cuda_cflags=["-O3", "-std=c++17", "--expt-extended-lambda", "-Xptxas=-v"],
)


class ModelNew(nn.Module):
    def __init__(self, inside, outside):
        super().__init__()
        self.linear = nn.Linear(inside, outside)
        self.norm = nn.BatchNorm1d(outside)

    def forward(self, x):
        norm = self.norm
        y, _, _ = extension.batch_norm(
            self.linear(x), norm.weight, norm.bias, running_mean=norm.running_mean, running_var=norm.running_var, training=norm.training
        )
        return y
