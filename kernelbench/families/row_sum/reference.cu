// y[r] = the sum of row r of x, a block a row.
#include <stdint.h>

namespace {

__global__ void rows_of(float *y, const float *x, int columns) {
    __shared__ float held[256];
    float sum = 0;
    for (int i = threadIdx.x; i < columns; i += 256) {
        sum += x[(int64_t)blockIdx.x * columns + i];
    }
    held[threadIdx.x] = sum;
    __syncthreads();
    for (int half = 128; half > 0; half /= 2) {
        if (threadIdx.x < half) {
            held[threadIdx.x] += held[threadIdx.x + half];
        }
        __syncthreads();
    }
    if (threadIdx.x == 0) {
        y[blockIdx.x] = held[0];
    }
}

}  // namespace

extern "C" void row_sum(float *y, const float *x, int32_t rows, int32_t columns, cudaStream_t stream) {
    rows_of<<<rows, 256, 0, stream>>>(y, x, columns);
}
