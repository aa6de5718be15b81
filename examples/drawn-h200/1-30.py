import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

cuda_src = r'''
#include <torch/types.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>

// 4096 * 393216 floats = 402653184 float4 = 393216 blocks * 256 threads * 4 float4
constexpr int THREADS = 256;
constexpr int VEC = 4;
constexpr long long TOTAL = 4096LL * 393216LL;
constexpr int BLOCKS = (int)(TOTAL / 4 / (THREADS * VEC));

__device__ __forceinline__ float softsign1(float v) {
    float d = 1.0f + fabsf(v);
    float r;
    asm("rcp.approx.f32 %0, %1;" : "=f"(r) : "f"(d));
    return v * r;
}

__global__ void __launch_bounds__(THREADS) softsign_kernel(const float4* __restrict__ x,
                                                           float4* __restrict__ y) {
    const size_t base = (size_t)blockIdx.x * (THREADS * VEC) + threadIdx.x;
    float4 v[VEC];
#pragma unroll
    for (int i = 0; i < VEC; ++i) v[i] = __ldcs(x + base + i * THREADS);
#pragma unroll
    for (int i = 0; i < VEC; ++i) {
        v[i].x = softsign1(v[i].x);
        v[i].y = softsign1(v[i].y);
        v[i].z = softsign1(v[i].z);
        v[i].w = softsign1(v[i].w);
        __stcs(y + base + i * THREADS, v[i]);
    }
}

torch::Tensor softsign_forward(torch::Tensor x) {
    TORCH_CHECK(x.is_cuda() && x.is_contiguous() && x.numel() == TOTAL, "unexpected input");
    auto y = torch::empty_like(x);
    softsign_kernel<<<BLOCKS, THREADS, 0, at::cuda::getCurrentCUDAStream()>>>(
        reinterpret_cast<const float4*>(x.data_ptr<float>()),
        reinterpret_cast<float4*>(y.data_ptr<float>()));
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return y;
}
'''

cpp_src = r'''
torch::Tensor softsign_forward(torch::Tensor x);
'''

softsign_ext = load_inline(
    name="softsign_4096x393216",
    cpp_sources=cpp_src,
    cuda_sources=cuda_src,
    functions=["softsign_forward"],
    extra_cuda_cflags=["-O3"],
    verbose=False,
)


class ModelNew(nn.Module):
    def __init__(self):
        super(ModelNew, self).__init__()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return softsign_ext.softsign_forward(x)
