import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

cuda_source = r"""
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>
#include <cuda_runtime.h>

// x is (128, 4096, 4095). Four rows of 4095 floats are exactly 4095 float4, so inside one batch
// the float4 with index j of every group of four rows always covers the same four columns:
// column of element k is (4 j + k) mod 4095. All loads are aligned 16 byte loads.
constexpr int BATCH = 128;
constexpr int GROUPS = 1024;   // groups of four rows in a batch
constexpr int LANES = 4095;    // float4 in a group
constexpr int COLS = 4095;
constexpr int SPLIT = 2;
constexpr int GPB = GROUPS / SPLIT;

__global__ void __launch_bounds__(256, 4)
max_partial_kernel(const float4* __restrict__ x, float4* __restrict__ part)
{
    const int j = blockIdx.x * 256 + threadIdx.x;
    const int jj = j < LANES ? j : LANES - 1;
    const int s = blockIdx.y;
    const int b = blockIdx.z;
    const float4* p = x + ((size_t)b * GROUPS + (size_t)s * GPB) * LANES + jj;

    const float ninf = __int_as_float(0xff800000);
    float4 m0 = make_float4(ninf, ninf, ninf, ninf);
    float4 m1 = m0;

    for (int g = 0; g < GPB; g += 8) {
        float4 v[8];
        #pragma unroll
        for (int i = 0; i < 8; ++i) v[i] = __ldcs(p + i * LANES);
        p += 8 * LANES;
        #pragma unroll
        for (int i = 0; i < 8; i += 2) {
            m0.x = fmaxf(m0.x, v[i].x);
            m0.y = fmaxf(m0.y, v[i].y);
            m0.z = fmaxf(m0.z, v[i].z);
            m0.w = fmaxf(m0.w, v[i].w);
            m1.x = fmaxf(m1.x, v[i + 1].x);
            m1.y = fmaxf(m1.y, v[i + 1].y);
            m1.z = fmaxf(m1.z, v[i + 1].z);
            m1.w = fmaxf(m1.w, v[i + 1].w);
        }
    }
    m0.x = fmaxf(m0.x, m1.x);
    m0.y = fmaxf(m0.y, m1.y);
    m0.z = fmaxf(m0.z, m1.z);
    m0.w = fmaxf(m0.w, m1.w);
    if (j < LANES) part[((size_t)b * SPLIT + s) * LANES + j] = m0;
}

__global__ void __launch_bounds__(256)
max_final_kernel(const float* __restrict__ part, float* __restrict__ out)
{
    const int c = blockIdx.x * 256 + threadIdx.x;
    const int b = blockIdx.y;
    if (c >= COLS) return;
    const float* p = part + (size_t)b * (SPLIT * 4 * COLS) + c;
    float m = p[0];
    #pragma unroll
    for (int i = 1; i < SPLIT * 4; ++i) m = fmaxf(m, p[i * COLS]);
    out[b * COLS + c] = m;
}

torch::Tensor max_dim1(torch::Tensor x)
{
    auto part = at::empty({(int64_t)BATCH * SPLIT * 4 * COLS}, x.options());
    auto out = at::empty({BATCH, COLS}, x.options());
    cudaStream_t stream = at::cuda::getCurrentCUDAStream();
    max_partial_kernel<<<dim3(16, SPLIT, BATCH), 256, 0, stream>>>(
        reinterpret_cast<const float4*>(x.data_ptr<float>()),
        reinterpret_cast<float4*>(part.data_ptr<float>()));
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    max_final_kernel<<<dim3(16, BATCH), 256, 0, stream>>>(
        part.data_ptr<float>(), out.data_ptr<float>());
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}
"""

cpp_source = r"""
torch::Tensor max_dim1(torch::Tensor x);
"""

max_ext = load_inline(
    name="max_dim1_ext",
    cpp_sources=cpp_source,
    cuda_sources=cuda_source,
    functions=["max_dim1"],
    extra_cuda_cflags=["-O3"],
    verbose=False,
)


class ModelNew(nn.Module):
    def __init__(self, dim: int):
        super(ModelNew, self).__init__()
        self.dim = dim

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return max_ext.max_dim1(x)
