"""Layer norm in CUDA with warp shuffles, optional weights, and half precision by CUDA's own types."""

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

cuda_source = r"""
#include <torch/types.h>
#include <ATen/ATen.h>
#include <ATen/Dispatch.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_fp16.h>
#include <cuda_bf16.h>

template <typename T> __device__ __forceinline__ float load(const T* p) { return static_cast<float>(*p); }
template <> __device__ __forceinline__ float load<__half>(const __half* p) { return __half2float(*p); }
template <> __device__ __forceinline__ float load<__nv_bfloat16>(const __nv_bfloat16* p) { return __bfloat162float(*p); }
template <typename T> __device__ __forceinline__ void store(T* p, float v) { *p = static_cast<T>(v); }
template <> __device__ __forceinline__ void store<__half>(__half* p, float v) { *p = __float2half(v); }
template <> __device__ __forceinline__ void store<__nv_bfloat16>(__nv_bfloat16* p, float v) { *p = __float2bfloat16(v); }

__device__ __forceinline__ float block_sum(float v, float* shared) {
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    for (int offset = 16; offset > 0; offset >>= 1) v += __shfl_down_sync(0xffffffff, v, offset);
    if (lane == 0) shared[warp] = v;
    __syncthreads();
    v = threadIdx.x < blockDim.x / 32 ? shared[lane] : 0.f;
    if (warp == 0) for (int offset = 16; offset > 0; offset >>= 1) v += __shfl_down_sync(0xffffffff, v, offset);
    if (threadIdx.x == 0) shared[0] = v;
    __syncthreads();
    v = shared[0];
    __syncthreads();
    return v;
}

template <typename T>
__global__ void layernorm_kernel(const T* __restrict__ x, const T* __restrict__ weight, const T* __restrict__ bias,
                                 T* __restrict__ y, int64_t columns, float eps) {
    __shared__ float shared[32];
    const T* row = x + blockIdx.x * columns;
    float sum = 0.f, squares = 0.f;
    for (int64_t i = threadIdx.x; i < columns; i += blockDim.x) sum += load(row + i);
    const float mean = block_sum(sum, shared) / columns;
    for (int64_t i = threadIdx.x; i < columns; i += blockDim.x) {
        const float d = load(row + i) - mean;
        squares += d * d;
    }
    const float scale = rsqrtf(block_sum(squares, shared) / columns + eps);
    for (int64_t i = threadIdx.x; i < columns; i += blockDim.x) {
        float v = (load(row + i) - mean) * scale;
        if (weight != nullptr) v = v * load(weight + i) + load(bias + i);
        store(y + blockIdx.x * columns + i, v);
    }
}

template <typename T, typename scalar_t>
void launch(const torch::Tensor& x, const c10::optional<torch::Tensor>& weight, const c10::optional<torch::Tensor>& bias,
            torch::Tensor& y, int64_t rows, int64_t columns, double eps) {
    const T* w = weight ? reinterpret_cast<const T*>(weight->data_ptr<scalar_t>()) : nullptr;
    const T* b = bias.has_value() ? reinterpret_cast<const T*>(bias.value().template data_ptr<scalar_t>()) : nullptr;
    const dim3 grid(static_cast<unsigned int>(rows));
    layernorm_kernel<T><<<grid, 256, 0, c10::cuda::getCurrentCUDAStream().stream()>>>(
        reinterpret_cast<const T*>(x.data_ptr<scalar_t>()), w, b, reinterpret_cast<T*>(y.data_ptr<scalar_t>()), columns,
        static_cast<float>(eps));
}

torch::Tensor layernorm(torch::Tensor x, std::vector<int64_t> normalized_shape, c10::optional<torch::Tensor> weight,
                        c10::optional<torch::Tensor> bias, double eps) {
    int64_t columns = 1;
    for (auto size : normalized_shape) columns *= size;
    TORCH_CHECK(columns > 0 && x.numel() % columns == 0, "normalized_shape ", normalized_shape, " does not fit ", x.sizes());
    auto input = x.contiguous();
    auto y = torch::empty(input.sizes(), torch::TensorOptions().dtype(input.dtype()).device(input.device()));
    const int64_t rows = input.numel() / columns;
    switch (input.scalar_type()) {
        case torch::kFloat: launch<float, float>(input, weight, bias, y, rows, columns, eps); break;
        case torch::kHalf: launch<__half, at::Half>(input, weight, bias, y, rows, columns, eps); break;
        case torch::kBFloat16: launch<__nv_bfloat16, at::BFloat16>(input, weight, bias, y, rows, columns, eps); break;
        default: AT_ERROR("layernorm: unsupported type ", toString(input.scalar_type()));
    }
    cudaError_t status = cudaGetLastError();
    TORCH_CHECK(status == cudaSuccess, "launch failed: ", cudaGetErrorString(status));
    return y.view_as(x);
}
"""

cpp_source = """
torch::Tensor layernorm(torch::Tensor x, std::vector<int64_t> normalized_shape, c10::optional<torch::Tensor> weight,
                        c10::optional<torch::Tensor> bias, double eps);
"""

extension = load_inline(
    name="layernorm_cuda",
    cpp_sources=[cpp_source],
    cuda_sources=[cuda_source],
    functions=["layernorm"],
    extra_cuda_cflags=["-O3", "-lineinfo"],
)


class ModelNew(nn.Module):
    def __init__(self, shape, eps):
        super().__init__()
        self.norm = nn.LayerNorm(shape, eps=eps)

    def forward(self, x):
        norm = self.norm
        return extension.layernorm(x, list(norm.normalized_shape), norm.weight, norm.bias, norm.eps)
