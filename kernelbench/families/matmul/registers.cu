// Tiles of {{ bm }} x {{ bn }} x {{ bk }}, of which a thread has {{ tm }} x {{ tn }} in registers; {{ vector }} numbers a load.
#include <cuda_fp16.h>
#include <stdint.h>

namespace {

constexpr int BM = {{ bm }}, BN = {{ bn }}, BK = {{ bk }}, TM = {{ tm }}, TN = {{ tn }}, VECTOR = {{ vector }};
constexpr int THREADS = (BM / TM) * (BN / TN);

struct alignas(2 * VECTOR) Pack {
    __half part[VECTOR];
};

__global__ void __launch_bounds__(THREADS) registers(float *c, const __half *a, const __half *b, int n, int k) {
    __shared__ float left[BK][BM], right[BK][BN];
    const int x = threadIdx.x % (BN / TN), y = threadIdx.x / (BN / TN);
    a += blockIdx.y * BM * k;
    b += blockIdx.x * BN;
    float sums[TM][TN] = {};
    for (int from = 0; from < k; from += BK) {
        for (int at = threadIdx.x * VECTOR; at < BM * BK; at += THREADS * VECTOR) {
            const Pack pack = *reinterpret_cast<const Pack *>(a + at / BK * k + from + at % BK);
#pragma unroll
            for (int i = 0; i < VECTOR; ++i) {
                left[at % BK + i][at / BK] = __half2float(pack.part[i]);
            }
        }
        for (int at = threadIdx.x * VECTOR; at < BK * BN; at += THREADS * VECTOR) {
            const Pack pack = *reinterpret_cast<const Pack *>(b + (from + at / BN) * n + at % BN);
#pragma unroll
            for (int i = 0; i < VECTOR; ++i) {
                right[at / BN][at % BN + i] = __half2float(pack.part[i]);
            }
        }
        __syncthreads();
#pragma unroll
        for (int i = 0; i < BK; ++i) {
            float l[TM], r[TN];
#pragma unroll
            for (int at = 0; at < TM; ++at) {
                l[at] = left[i][y * TM + at];
            }
#pragma unroll
            for (int at = 0; at < TN; ++at) {
                r[at] = right[i][x * TN + at];
            }
#pragma unroll
            for (int down = 0; down < TM; ++down) {
#pragma unroll
                for (int across = 0; across < TN; ++across) {
                    sums[down][across] += l[down] * r[across];
                }
            }
        }
        __syncthreads();
    }
#pragma unroll
    for (int down = 0; down < TM; ++down) {
#pragma unroll
        for (int across = 0; across < TN; ++across) {
            c[(blockIdx.y * BM + y * TM + down) * n + blockIdx.x * BN + x * TN + across] = sums[down][across];
        }
    }
}

}  // namespace

extern "C" void matmul(float *c, const __half *a, const __half *b, int32_t m, int32_t n, int32_t k, cudaStream_t stream) {
    registers<<<dim3(n / BN, m / BM), THREADS, 0, stream>>>(c, a, b, n, k);
}
