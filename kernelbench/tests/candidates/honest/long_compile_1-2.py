# right: fp32 products in shared-memory tiles, 100 instantiations of one template, the tile chosen at run time
# problem: level1/2
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
        float* __restrict__ C, int M, int N, int K) {
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
            const int k = i / BN, n = i % BN;
            Bs[k][n] = (!GUARD || (col0 + n < N && k0 + k < K)) ? B[(size_t)(k0 + k) * N + col0 + n] : 0.f;
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
            if (!GUARD || (m < M && n < N)) C[(size_t)m * N + n] = acc[i][j];
        }
    }
}

template <int BM, int BN, int BK, int TM, int TN>
void start(const float* A, const float* B, float* C, int M, int N, int K, cudaStream_t stream) {
    const dim3 grid((N + BN - 1) / BN, (M + BM - 1) / BM);
    constexpr int THREADS = (BM / TM) * (BN / TN);
    if (M % BM == 0 && N % BN == 0 && K % BK == 0)
        product<BM, BN, BK, TM, TN, false><<<grid, THREADS, 0, stream>>>(A, B, C, M, N, K);
    else
        product<BM, BN, BK, TM, TN, true><<<grid, THREADS, 0, stream>>>(A, B, C, M, N, K);
}

struct Choice { int bm, bn, bk; void (*start)(const float*, const float*, float*, int, int, int, cudaStream_t); };
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
void multiply(const float* A, const float* B, float* C, int M, int N, int K, cudaStream_t stream) {
    constexpr int COUNT = sizeof(CHOICES) / sizeof(CHOICES[0]);
    int at = COUNT - 1;
    const bool whole = M % 32 == 0 && N % 32 == 0 && K % 8 == 0;  // then only tiles without a guard
    for (int i = 0; i < COUNT; ++i) {
        if (whole && (M % CHOICES[i].bm || N % CHOICES[i].bn || K % CHOICES[i].bk)) continue;
        const long blocks = (long)((M + CHOICES[i].bm - 1) / CHOICES[i].bm) * ((N + CHOICES[i].bn - 1) / CHOICES[i].bn);
        if (blocks >= 264 && K >= CHOICES[i].bk) { at = i; break; }
    }
    CHOICES[at].start(A, B, C, M, N, K, stream);
}
"""

HOST = r"""
torch::Tensor product_of(torch::Tensor a, torch::Tensor b) {
    TORCH_CHECK(a.is_cuda() && b.is_cuda() && a.dim() == 2 && b.dim() == 2 && a.size(1) == b.size(0), "two matrices");
    a = a.contiguous();
    b = b.contiguous();
    auto c = torch::empty({a.size(0), b.size(1)}, a.options());
    multiply(a.data_ptr<float>(), b.data_ptr<float>(), c.data_ptr<float>(), a.size(0), b.size(1), a.size(1),
             c10::cuda::getCurrentCUDAStream().stream());
    TORCH_CHECK(cudaGetLastError() == cudaSuccess, "launch");
    return c;
}
"""

module = load_inline(
    name="honest_long_compile_1_1_2",
    cpp_sources="torch::Tensor product_of(torch::Tensor a, torch::Tensor b);",
    cuda_sources=HEADERS + KERNELS + HOST,
    functions=['product_of'],
    extra_cuda_cflags=["-O3"],
)

class ModelNew(nn.Module):
    def forward(self, A, B):
        return module.product_of(A, B)
