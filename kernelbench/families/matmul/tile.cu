// Tiles of {{ tile }} x {{ tile }} in shared memory, rows padded by {{ pad }}{% if turned %}, the right one turned{% endif %}; an element a thread.
#include <cuda_fp16.h>
#include <stdint.h>

namespace {

constexpr int TILE = {{ tile }}, PAD = {{ pad }};

__global__ void __launch_bounds__(TILE * TILE) tiles(float *c, const __half *a, const __half *b, int n, int k) {
    __shared__ float left[TILE][TILE + PAD], right[TILE][TILE + PAD];
    const int x = threadIdx.x, y = threadIdx.y;
    const int row = blockIdx.y * TILE + y, column = blockIdx.x * TILE + x;
    float sum = 0;
    for (int from = 0; from < k; from += TILE) {
        left[y][x] = __half2float(a[row * k + from + x]);
        right{% if turned %}[x][y]{% else %}[y][x]{% endif %} = __half2float(b[(from + y) * n + column]);
        __syncthreads();
#pragma unroll {{ unroll }}
        for (int i = 0; i < TILE; ++i) {
            sum += left[y][i] * right{% if turned %}[x][i]{% else %}[i][x]{% endif %};
        }
        __syncthreads();
    }
    c[row * n + column] = sum;
}

}  // namespace

extern "C" void matmul(float *c, const __half *a, const __half *b, int32_t m, int32_t n, int32_t k, cudaStream_t stream) {
    tiles<<<dim3(n / TILE, m / TILE), dim3(TILE, TILE), 0, stream>>>(c, a, b, n, k);
}
