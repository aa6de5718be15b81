// An element a thread, an atomic addition for each {{ together }} lane(s); {{ threads }} threads a block.
#include <stdint.h>

namespace {

constexpr int THREADS = {{ threads }}, TOGETHER = {{ together }};

__global__ void zero(float *y, int rows) {
    const int row = blockIdx.x * THREADS + threadIdx.x;
    if (row < rows) {
        y[row] = 0;
    }
}

__global__ void __launch_bounds__(THREADS) element(float *y, const float *values, const int *columns, const int *lengths,
                                                   const float *x, int rows, int width) {
    const int64_t at = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    const int row = (int)(at / width), i = (int)(at % width);
    const bool counts = row < rows && i < lengths[row];
    float value = counts ? values[at] * x[columns[at]] : 0;
#pragma unroll
    for (int apart = TOGETHER / 2; apart > 0; apart /= 2) {
        value += __shfl_xor_sync(0xffffffff, value, apart);
    }
    if (counts && threadIdx.x % TOGETHER == 0) {
        atomicAdd(y + row, value);
    }
}

}  // namespace

extern "C" void sparse_rows(float *y, const float *values, const int32_t *columns, const int32_t *lengths, const float *x,
                            int32_t rows, int32_t width, int32_t wide, cudaStream_t stream) {
    (void)wide;
    zero<<<(rows + THREADS - 1) / THREADS, THREADS, 0, stream>>>(y, rows);
    const int64_t all = (int64_t)rows * width;
    element<<<(unsigned)((all + THREADS - 1) / THREADS), THREADS, 0, stream>>>(y, values, columns, lengths, x, rows, width);
}
