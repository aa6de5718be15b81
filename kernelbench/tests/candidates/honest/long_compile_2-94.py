# right: torch's product, then bias, hardtanh, mish and group norm in registers of a part of a warp, 192 instantiations
# problem: level2/94
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

__device__ __forceinline__ float mish_of(float x) { return x * tanhf(log1pf(expf(x))); }

template <int LANES>
__device__ __forceinline__ float over_lanes(float v) {
#pragma unroll
    for (int step = LANES / 2; step; step >>= 1) v += __shfl_xor_sync(0xffffffffu, v, step);
    return v;
}

// one group of LANES * ITEMS channels of one row for each LANES threads
template <int LANES, int ITEMS>
__global__ __launch_bounds__(128) void bounded_mish_norm(const float* __restrict__ x, const float* __restrict__ add,
        const float* __restrict__ weight, const float* __restrict__ bias, float* __restrict__ y,
        int groups_in_all, int groups, float eps) {
    constexpr int GROUP = LANES * ITEMS;
    const int wanted = blockIdx.x * (128 / LANES) + threadIdx.x / LANES;
    const int lane = threadIdx.x % LANES;
    const int group = min(wanted, groups_in_all - 1);
    const int channel0 = group % groups * GROUP;
    const size_t base = (size_t)group * GROUP;
    float v[ITEMS];
    float sum = 0.f;
#pragma unroll
    for (int i = 0; i < ITEMS; ++i) {
        const int at = i * LANES + lane;
        v[i] = mish_of(fminf(fmaxf(x[base + at] + add[channel0 + at], -1.f), 1.f));
        sum += v[i];
    }
    const float mean = over_lanes<LANES>(sum) / GROUP;
    float squares = 0.f;
#pragma unroll
    for (int i = 0; i < ITEMS; ++i) squares += (v[i] - mean) * (v[i] - mean);
    const float scale = 1.f / sqrtf(over_lanes<LANES>(squares) / GROUP + eps);
    if (wanted < groups_in_all) {
#pragma unroll
        for (int i = 0; i < ITEMS; ++i) {
            const int at = i * LANES + lane;
            y[base + at] = (v[i] - mean) * scale * weight[channel0 + at] + bias[channel0 + at];
        }
    }
}

template <int LANES, int ITEMS>
void start(const float* x, const float* add, const float* weight, const float* bias, float* y,
           int groups_in_all, int groups, float eps, cudaStream_t stream) {
    constexpr int EACH = 128 / LANES;
    bounded_mish_norm<LANES, ITEMS><<<(groups_in_all + EACH - 1) / EACH, 128, 0, stream>>>(
        x, add, weight, bias, y, groups_in_all, groups, eps);
}

struct Choice {
    int size;
    void (*start)(const float*, const float*, const float*, const float*, float*, int, int, float, cudaStream_t);
};
#define CHOICE(LANES, ITEMS) {LANES * ITEMS, &start<LANES, ITEMS>}
static const Choice CHOICES[] = {  // for each size the fewest items a thread first
    CHOICE(1, 1),
    CHOICE(2, 1),
    CHOICE(1, 2),
    CHOICE(1, 3),
    CHOICE(4, 1),
    CHOICE(2, 2),
    CHOICE(1, 4),
    CHOICE(1, 5),
    CHOICE(2, 3),
    CHOICE(1, 6),
    CHOICE(1, 7),
    CHOICE(8, 1),
    CHOICE(4, 2),
    CHOICE(2, 4),
    CHOICE(1, 8),
    CHOICE(1, 9),
    CHOICE(2, 5),
    CHOICE(1, 10),
    CHOICE(1, 11),
    CHOICE(4, 3),
    CHOICE(2, 6),
    CHOICE(1, 12),
    CHOICE(1, 13),
    CHOICE(2, 7),
    CHOICE(1, 14),
    CHOICE(1, 15),
    CHOICE(16, 1),
    CHOICE(8, 2),
    CHOICE(4, 4),
    CHOICE(2, 8),
    CHOICE(1, 16),
    CHOICE(1, 17),
    CHOICE(2, 9),
    CHOICE(1, 18),
    CHOICE(1, 19),
    CHOICE(4, 5),
    CHOICE(2, 10),
    CHOICE(1, 20),
    CHOICE(1, 21),
    CHOICE(2, 11),
    CHOICE(1, 22),
    CHOICE(1, 23),
    CHOICE(8, 3),
    CHOICE(4, 6),
    CHOICE(2, 12),
    CHOICE(1, 24),
    CHOICE(1, 25),
    CHOICE(2, 13),
    CHOICE(1, 26),
    CHOICE(1, 27),
    CHOICE(4, 7),
    CHOICE(2, 14),
    CHOICE(1, 28),
    CHOICE(1, 29),
    CHOICE(2, 15),
    CHOICE(1, 30),
    CHOICE(1, 31),
    CHOICE(32, 1),
    CHOICE(16, 2),
    CHOICE(8, 4),
    CHOICE(4, 8),
    CHOICE(2, 16),
    CHOICE(1, 32),
    CHOICE(2, 17),
    CHOICE(4, 9),
    CHOICE(2, 18),
    CHOICE(2, 19),
    CHOICE(8, 5),
    CHOICE(4, 10),
    CHOICE(2, 20),
    CHOICE(2, 21),
    CHOICE(4, 11),
    CHOICE(2, 22),
    CHOICE(2, 23),
    CHOICE(16, 3),
    CHOICE(8, 6),
    CHOICE(4, 12),
    CHOICE(2, 24),
    CHOICE(2, 25),
    CHOICE(4, 13),
    CHOICE(2, 26),
    CHOICE(2, 27),
    CHOICE(8, 7),
    CHOICE(4, 14),
    CHOICE(2, 28),
    CHOICE(2, 29),
    CHOICE(4, 15),
    CHOICE(2, 30),
    CHOICE(2, 31),
    CHOICE(32, 2),
    CHOICE(16, 4),
    CHOICE(8, 8),
    CHOICE(4, 16),
    CHOICE(2, 32),
    CHOICE(4, 17),
    CHOICE(8, 9),
    CHOICE(4, 18),
    CHOICE(4, 19),
    CHOICE(16, 5),
    CHOICE(8, 10),
    CHOICE(4, 20),
    CHOICE(4, 21),
    CHOICE(8, 11),
    CHOICE(4, 22),
    CHOICE(4, 23),
    CHOICE(32, 3),
    CHOICE(16, 6),
    CHOICE(8, 12),
    CHOICE(4, 24),
    CHOICE(4, 25),
    CHOICE(8, 13),
    CHOICE(4, 26),
    CHOICE(4, 27),
    CHOICE(16, 7),
    CHOICE(8, 14),
    CHOICE(4, 28),
    CHOICE(4, 29),
    CHOICE(8, 15),
    CHOICE(4, 30),
    CHOICE(4, 31),
    CHOICE(32, 4),
    CHOICE(16, 8),
    CHOICE(8, 16),
    CHOICE(4, 32),
    CHOICE(8, 17),
    CHOICE(16, 9),
    CHOICE(8, 18),
    CHOICE(8, 19),
    CHOICE(32, 5),
    CHOICE(16, 10),
    CHOICE(8, 20),
    CHOICE(8, 21),
    CHOICE(16, 11),
    CHOICE(8, 22),
    CHOICE(8, 23),
    CHOICE(32, 6),
    CHOICE(16, 12),
    CHOICE(8, 24),
    CHOICE(8, 25),
    CHOICE(16, 13),
    CHOICE(8, 26),
    CHOICE(8, 27),
    CHOICE(32, 7),
    CHOICE(16, 14),
    CHOICE(8, 28),
    CHOICE(8, 29),
    CHOICE(16, 15),
    CHOICE(8, 30),
    CHOICE(8, 31),
    CHOICE(32, 8),
    CHOICE(16, 16),
    CHOICE(8, 32),
    CHOICE(16, 17),
    CHOICE(32, 9),
    CHOICE(16, 18),
    CHOICE(16, 19),
    CHOICE(32, 10),
    CHOICE(16, 20),
    CHOICE(16, 21),
    CHOICE(32, 11),
    CHOICE(16, 22),
    CHOICE(16, 23),
    CHOICE(32, 12),
    CHOICE(16, 24),
    CHOICE(16, 25),
    CHOICE(32, 13),
    CHOICE(16, 26),
    CHOICE(16, 27),
    CHOICE(32, 14),
    CHOICE(16, 28),
    CHOICE(16, 29),
    CHOICE(32, 15),
    CHOICE(16, 30),
    CHOICE(16, 31),
    CHOICE(32, 16),
    CHOICE(16, 32),
    CHOICE(32, 17),
    CHOICE(32, 18),
    CHOICE(32, 19),
    CHOICE(32, 20),
    CHOICE(32, 21),
    CHOICE(32, 22),
    CHOICE(32, 23),
    CHOICE(32, 24),
    CHOICE(32, 25),
    CHOICE(32, 26),
    CHOICE(32, 27),
    CHOICE(32, 28),
    CHOICE(32, 29),
    CHOICE(32, 30),
    CHOICE(32, 31),
    CHOICE(32, 32),
};

bool bounded_mish_norm_rows(const float* x, const float* add, const float* weight, const float* bias, float* y,
                            int rows, int channels, int groups, float eps, cudaStream_t stream) {
    for (const Choice& choice : CHOICES)
        if (choice.size * groups == channels) {
            choice.start(x, add, weight, bias, y, rows * groups, groups, eps, stream);
            return true;
        }
    return false;
}
"""

HOST = r"""
torch::Tensor bounded_mish_norm_of(torch::Tensor x, torch::Tensor add, torch::Tensor weight, torch::Tensor bias,
                                   int64_t groups, double eps) {
    TORCH_CHECK(x.is_cuda() && x.dim() == 2 && x.size(0) > 0 && add.numel() == x.size(1), "shapes");
    x = x.contiguous();
    add = add.contiguous();
    auto y = torch::empty_like(x);
    TORCH_CHECK(bounded_mish_norm_rows(x.data_ptr<float>(), add.data_ptr<float>(), weight.data_ptr<float>(),
                                       bias.data_ptr<float>(), y.data_ptr<float>(), x.size(0), x.size(1), groups,
                                       (float)eps, c10::cuda::getCurrentCUDAStream().stream()),
                "groups of at most 32 channels a lane");
    TORCH_CHECK(cudaGetLastError() == cudaSuccess, "launch");
    return y;
}
"""

module = load_inline(
    name="honest_long_compile_4_2_94",
    cpp_sources="torch::Tensor bounded_mish_norm_of(torch::Tensor x, torch::Tensor add, torch::Tensor weight, torch::Tensor bias, int64_t groups, double eps);",
    cuda_sources=HEADERS + KERNELS + HOST,
    functions=['bounded_mish_norm_of'],
    extra_cuda_cflags=["-O3"],
)

class ModelNew(nn.Module):
    def __init__(self, in_features, out_features, bias_shape, num_groups):
        super().__init__()
        self.gemm = nn.Linear(in_features, out_features)
        self.bias = nn.Parameter(torch.randn(bias_shape))
        self.hardtanh = nn.Hardtanh()
        self.mish = nn.Mish()
        self.groupnorm = nn.GroupNorm(num_groups=num_groups, num_channels=out_features)

    @torch.no_grad()
    def forward(self, x):
        norm = self.groupnorm
        return module.bounded_mish_norm_of(
            self.gemm(x), self.bias, norm.weight, norm.bias, norm.num_groups, norm.eps)
