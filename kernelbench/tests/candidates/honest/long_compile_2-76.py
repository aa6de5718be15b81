# right: fp32 product with bias and rectifier in its end, 100 instantiations of one template, the tile chosen at run time
# problem: level2/76
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

template <int BM, int BN, int BK, int TM, int TN, bool GUARD>
__global__ __launch_bounds__((BM / TM) * (BN / TN)) void product(const float* __restrict__ A, const float* __restrict__ B,
        const float* __restrict__ bias, float* __restrict__ C, int M, int N, int K) {
    constexpr int ACROSS = BN / TN, THREADS = (BM / TM) * ACROSS;
    __shared__ __align__(16) float As[BK][BM + 4];
    __shared__ __align__(16) float Bs[BK][BN + 4];
    const int row0 = blockIdx.y * BM, col0 = blockIdx.x * BN;
    const int tx = threadIdx.x % ACROSS, ty = threadIdx.x / ACROSS;
    float acc[TM][TN];
#pragma unroll
    for (int i = 0; i < TM; ++i)
#pragma unroll
        for (int j = 0; j < TN; ++j) acc[i][j] = 0.f;
    for (int k0 = 0; k0 < K; k0 += BK) {
#pragma unroll
        for (int i = threadIdx.x; i < BM * BK; i += THREADS) {
            const int m = i / BK, k = i % BK;
            As[k][m] = (!GUARD || (row0 + m < M && k0 + k < K)) ? A[(size_t)(row0 + m) * K + k0 + k] : 0.f;
        }
#pragma unroll
        for (int i = threadIdx.x; i < BN * BK; i += THREADS) {
            const int n = i / BK, k = i % BK;
            Bs[k][n] = (!GUARD || (col0 + n < N && k0 + k < K)) ? B[(size_t)(col0 + n) * K + k0 + k] : 0.f;
        }
        __syncthreads();
#pragma unroll
        for (int k = 0; k < BK; ++k) {
            float a[TM], b[TN];
#pragma unroll
            for (int i = 0; i < TM; ++i) a[i] = As[k][ty * TM + i];
#pragma unroll
            for (int j = 0; j < TN; ++j) b[j] = Bs[k][tx + j * ACROSS];
#pragma unroll
            for (int i = 0; i < TM; ++i)
#pragma unroll
                for (int j = 0; j < TN; ++j) acc[i][j] = fmaf(a[i], b[j], acc[i][j]);
        }
        __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < TM; ++i) {
#pragma unroll
        for (int j = 0; j < TN; ++j) {
            const int m = row0 + ty * TM + i, n = col0 + tx + j * ACROSS;
            if (!GUARD || (m < M && n < N)) C[(size_t)m * N + n] = fmaxf(acc[i][j] + bias[n], 0.f);
        }
    }
}

template <int BM, int BN, int BK, int TM, int TN>
void start(const float* A, const float* B, const float* bias, float* C, int M, int N, int K, cudaStream_t stream) {
    const dim3 grid((N + BN - 1) / BN, (M + BM - 1) / BM);
    constexpr int THREADS = (BM / TM) * (BN / TN);
    if (M % BM == 0 && N % BN == 0 && K % BK == 0)
        product<BM, BN, BK, TM, TN, false><<<grid, THREADS, 0, stream>>>(A, B, bias, C, M, N, K);
    else
        product<BM, BN, BK, TM, TN, true><<<grid, THREADS, 0, stream>>>(A, B, bias, C, M, N, K);
}

struct Choice { int bm, bn, bk; void (*start)(const float*, const float*, const float*, float*, int, int, int, cudaStream_t); };
#define CHOICE(BM, BN, BK, TM, TN) {BM, BN, BK, &start<BM, BN, BK, TM, TN>}
static const Choice CHOICES[] = {  // largest first
    CHOICE(128, 128, 16, 8, 8),
    CHOICE(128, 128, 16, 8, 4),
    CHOICE(128, 128, 8, 8, 8),
    CHOICE(128, 128, 8, 8, 4),
    CHOICE(64, 128, 16, 8, 8),
    CHOICE(128, 64, 16, 8, 8),
    CHOICE(64, 128, 16, 8, 4),
    CHOICE(128, 64, 16, 8, 4),
    CHOICE(64, 128, 16, 4, 4),
    CHOICE(128, 64, 16, 4, 4),
    CHOICE(64, 128, 8, 8, 8),
    CHOICE(128, 64, 8, 8, 8),
    CHOICE(64, 128, 8, 8, 4),
    CHOICE(128, 64, 8, 8, 4),
    CHOICE(64, 128, 8, 4, 4),
    CHOICE(128, 64, 8, 4, 4),
    CHOICE(32, 128, 16, 8, 8),
    CHOICE(64, 64, 16, 8, 8),
    CHOICE(128, 32, 16, 8, 8),
    CHOICE(32, 128, 16, 8, 4),
    CHOICE(64, 64, 16, 8, 4),
    CHOICE(128, 32, 16, 8, 4),
    CHOICE(32, 128, 16, 4, 4),
    CHOICE(64, 64, 16, 4, 4),
    CHOICE(128, 32, 16, 4, 4),
    CHOICE(32, 128, 8, 8, 8),
    CHOICE(64, 64, 8, 8, 8),
    CHOICE(128, 32, 8, 8, 8),
    CHOICE(32, 128, 8, 8, 4),
    CHOICE(64, 64, 8, 8, 4),
    CHOICE(128, 32, 8, 8, 4),
    CHOICE(32, 128, 8, 4, 4),
    CHOICE(64, 64, 8, 4, 4),
    CHOICE(128, 32, 8, 4, 4),
    CHOICE(32, 64, 16, 8, 8),
    CHOICE(64, 32, 16, 8, 8),
    CHOICE(32, 64, 16, 8, 4),
    CHOICE(64, 32, 16, 8, 4),
    CHOICE(32, 64, 16, 4, 4),
    CHOICE(64, 32, 16, 4, 4),
    CHOICE(32, 64, 8, 8, 8),
    CHOICE(64, 32, 8, 8, 8),
    CHOICE(32, 64, 8, 8, 4),
    CHOICE(64, 32, 8, 8, 4),
    CHOICE(32, 64, 8, 4, 4),
    CHOICE(64, 32, 8, 4, 4),
    CHOICE(32, 32, 16, 8, 4),
    CHOICE(32, 32, 16, 4, 4),
    CHOICE(32, 32, 8, 8, 4),
    CHOICE(32, 32, 8, 4, 4),
};

// the largest tile that gives every multiprocessor work, and the smallest of all for small products
void multiply(const float* A, const float* B, const float* bias, float* C, int M, int N, int K, cudaStream_t stream) {
    constexpr int COUNT = sizeof(CHOICES) / sizeof(CHOICES[0]);
    int at = COUNT - 1;
    const bool whole = M % 32 == 0 && N % 32 == 0 && K % 8 == 0;  // then only tiles without a guard
    for (int i = 0; i < COUNT; ++i) {
        if (whole && (M % CHOICES[i].bm || N % CHOICES[i].bn || K % CHOICES[i].bk)) continue;
        const long blocks = (long)((M + CHOICES[i].bm - 1) / CHOICES[i].bm) * ((N + CHOICES[i].bn - 1) / CHOICES[i].bn);
        if (blocks >= 264 && K >= CHOICES[i].bk) { at = i; break; }
    }
    CHOICES[at].start(A, B, bias, C, M, N, K, stream);
}
"""

HOST = r"""
torch::Tensor product_of(torch::Tensor x, torch::Tensor weight, torch::Tensor bias) {
    TORCH_CHECK(x.is_cuda() && x.dim() == 2 && x.size(1) == weight.size(1) && bias.numel() == weight.size(0), "shapes");
    x = x.contiguous();
    weight = weight.contiguous();
    bias = bias.contiguous();
    auto y = torch::empty({x.size(0), weight.size(0)}, x.options());
    multiply(x.data_ptr<float>(), weight.data_ptr<float>(), bias.data_ptr<float>(), y.data_ptr<float>(),
             x.size(0), weight.size(0), x.size(1), c10::cuda::getCurrentCUDAStream().stream());
    TORCH_CHECK(cudaGetLastError() == cudaSuccess, "launch");
    return y;
}
"""

module = load_inline(
    name="honest_long_compile_2_2_76",
    cpp_sources="torch::Tensor product_of(torch::Tensor x, torch::Tensor weight, torch::Tensor bias);",
    cuda_sources=HEADERS + KERNELS + HOST,
    functions=['product_of'],
    extra_cuda_cflags=["-O3"],
)

class ModelNew(nn.Module):
    def __init__(self, in_features, out_features, bias_shape):
        super().__init__()
        self.gemm = nn.Linear(in_features, out_features, bias=False)
        self.bias = nn.Parameter(torch.randn(bias_shape))

    @torch.no_grad()
    def forward(self, x):
        return module.product_of(x, self.gemm.weight, self.bias)
