// Tensor cores on tiles of {{ bm }} x {{ bn }} x {{ bk }}, shared by {{ rows }} x {{ columns }} warps, in {{ stages }} stage(s) of asynchronous copies.
#include <cuda_fp16.h>
#include <cuda_pipeline.h>
#include <mma.h>
#include <stdint.h>

namespace {

using namespace nvcuda;

constexpr int BM = {{ bm }}, BN = {{ bn }}, BK = {{ bk }}, ROWS = {{ rows }}, COLUMNS = {{ columns }}, STAGES = {{ stages }};
constexpr int PAD = 8, THREADS = 32 * ROWS * COLUMNS;
constexpr int DOWN = BM / ROWS / 16, ACROSS = BN / COLUMNS / 16;
constexpr int LEFT = BM * (BK + PAD), STAGE = LEFT + BK * (BN + PAD);

extern __shared__ __align__(128) __half held[];

__device__ void fetch(__half *stage, const __half *a, const __half *b, int n, int k, int from) {
    for (int at = threadIdx.x * 8; at < BM * BK; at += THREADS * 8) {
        __pipeline_memcpy_async(stage + at / BK * (BK + PAD) + at % BK, a + at / BK * k + from + at % BK, 16);
    }
    for (int at = threadIdx.x * 8; at < BK * BN; at += THREADS * 8) {
        __pipeline_memcpy_async(stage + LEFT + at / BN * (BN + PAD) + at % BN, b + (from + at / BN) * n + at % BN, 16);
    }
}

__global__ void __launch_bounds__(THREADS) fragments(float *c, const __half *a, const __half *b, int n, int k) {
    a += blockIdx.y * BM * k;
    b += blockIdx.x * BN;
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> sums[DOWN][ACROSS];
#pragma unroll
    for (int y = 0; y < DOWN; ++y) {
#pragma unroll
        for (int x = 0; x < ACROSS; ++x) {
            wmma::fill_fragment(sums[y][x], 0.0f);
        }
    }
    const int warp = threadIdx.x / 32, row = warp / COLUMNS * (BM / ROWS), column = warp % COLUMNS * (BN / COLUMNS);
    const int steps = k / BK;
    for (int step = 0; step < STAGES - 1; ++step) {
        if (step < steps) {
            fetch(held + step * STAGE, a, b, n, k, step * BK);
        }
        __pipeline_commit();
    }
    for (int step = 0; step < steps; ++step) {
        const int ahead = step + STAGES - 1;
        if (ahead < steps) {
            fetch(held + ahead % STAGES * STAGE, a, b, n, k, ahead * BK);
        }
        __pipeline_commit();
        __pipeline_wait_prior(STAGES - 1);
        __syncthreads();
        const __half *left = held + step % STAGES * STAGE, *right = left + LEFT;
#pragma unroll
        for (int i = 0; i < BK; i += 16) {
            wmma::fragment<wmma::matrix_a, 16, 16, 16, __half, wmma::row_major> l[DOWN];
            wmma::fragment<wmma::matrix_b, 16, 16, 16, __half, wmma::row_major> r[ACROSS];
#pragma unroll
            for (int y = 0; y < DOWN; ++y) {
                wmma::load_matrix_sync(l[y], left + (row + 16 * y) * (BK + PAD) + i, BK + PAD);
            }
#pragma unroll
            for (int x = 0; x < ACROSS; ++x) {
                wmma::load_matrix_sync(r[x], right + i * (BN + PAD) + column + 16 * x, BN + PAD);
            }
#pragma unroll
            for (int y = 0; y < DOWN; ++y) {
#pragma unroll
                for (int x = 0; x < ACROSS; ++x) {
                    wmma::mma_sync(sums[y][x], l[y], r[x], sums[y][x]);
                }
            }
        }
        __syncthreads();
    }
#pragma unroll
    for (int y = 0; y < DOWN; ++y) {
#pragma unroll
        for (int x = 0; x < ACROSS; ++x) {
            float *to = c + (blockIdx.y * BM + row + 16 * y) * n + blockIdx.x * BN + column + 16 * x;
            wmma::store_matrix_sync(to, sums[y][x], n, wmma::mem_row_major);
        }
    }
}

}  // namespace

extern "C" void matmul(float *c, const __half *a, const __half *b, int32_t m, int32_t n, int32_t k, cudaStream_t stream) {
    constexpr int bytes = STAGES * STAGE * sizeof(__half);
    cudaFuncSetAttribute(fragments, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    fragments<<<dim3(n / BN, m / BM), THREADS, bytes, stream>>>(c, a, b, n, k);
}
