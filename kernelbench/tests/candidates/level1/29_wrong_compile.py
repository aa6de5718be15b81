# wrong: it does not compile: the kernel calls a function that there is none of
# problem: level1/29
# ours: build
# says: log1p_of_exp
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

CUDA = r"""
#include <torch/extension.h>

__device__ float softplus_of(float x) { return x > 20.f ? x : log1p_of_exp(x); }

__global__ void softplus_kernel(const float4* __restrict__ x, float4* __restrict__ y, size_t quads) {
    const size_t at = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= quads) return;
    const float4 v = __ldcs(x + at);
    __stcs(y + at, make_float4(softplus_of(v.x), softplus_of(v.y), softplus_of(v.z), softplus_of(v.w)));
}

torch::Tensor softplus_of_all(torch::Tensor x) {
    TORCH_CHECK(x.is_contiguous() && x.numel() % 4 == 0, "contiguous, whole quads");
    auto y = torch::empty_like(x);
    const size_t quads = x.numel() / 4;
    softplus_kernel<<<(quads + 255) / 256, 256>>>(
        reinterpret_cast<const float4*>(x.data_ptr<float>()), reinterpret_cast<float4*>(y.data_ptr<float>()), quads);
    return y;
}
"""

module = load_inline(
    name="softplus_undeclared",
    cpp_sources="torch::Tensor softplus_of_all(torch::Tensor x);",
    cuda_sources=CUDA,
    functions=["softplus_of_all"],
    extra_cuda_cflags=["-O3"],
)


class ModelNew(nn.Module):
    def forward(self, x):
        return module.softplus_of_all(x)
