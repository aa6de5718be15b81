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

constexpr long long TOTAL = 4096LL * 393216LL;
constexpr int THREADS = 128;
constexpr int VECS = 1;                       // float4 values per thread
constexpr int PER_BLOCK = THREADS * VECS;     // float4 values per block
constexpr int BLOCKS = (int)(TOTAL / 4 / PER_BLOCK);
static_assert(TOTAL % (4LL * PER_BLOCK) == 0, "tiles fit exactly");

// max(x, 0) + log(1 + exp(-|x|)): the argument of the logarithm lies in (1, 2].
__device__ __forceinline__ float softplus1(float x) {
    const float e = __expf(-fabsf(x));
    return fmaxf(x, 0.0f) + __logf(1.0f + e);
}

__global__ void __launch_bounds__(THREADS) softplus_kernel(const float4* __restrict__ x,
                                                           float4* __restrict__ y) {
    const unsigned base = blockIdx.x * (unsigned)PER_BLOCK + threadIdx.x;
    const float4 v = __ldcs(x + base);
    float4 r;
    r.x = softplus1(v.x);
    r.y = softplus1(v.y);
    r.z = softplus1(v.z);
    r.w = softplus1(v.w);
    y[base] = r;
}

}  // namespace

torch::Tensor softplus_forward(torch::Tensor x) {
    TORCH_CHECK(x.is_cuda() && x.is_contiguous() && x.scalar_type() == torch::kFloat32,
                "expected a contiguous float32 CUDA tensor");
    TORCH_CHECK(x.numel() == TOTAL, "unexpected size");
    const c10::cuda::CUDAGuard guard(x.device());
    torch::Tensor y = torch::empty_like(x);
    cudaStream_t stream = c10::cuda::getCurrentCUDAStream().stream();
    softplus_kernel<<<BLOCKS, THREADS, 0, stream>>>(
        reinterpret_cast<const float4*>(x.data_ptr<float>()),
        reinterpret_cast<float4*>(y.data_ptr<float>()));
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return y;
}
"""

cpp_source = "torch::Tensor softplus_forward(torch::Tensor x);"

softplus_ext = load_inline(
    name="softplus_stream_ext",
    cpp_sources=cpp_source,
    cuda_sources=cuda_source,
    functions=["softplus_forward"],
    extra_cuda_cflags=["-O3"],
    verbose=False,
)


class ModelNew(nn.Module):
    def __init__(self):
        super(ModelNew, self).__init__()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return softplus_ext.softplus_forward(x)
