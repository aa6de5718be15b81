// A sparse matrix times a vector, a row for eight lanes.
#include <stdint.h>

namespace {

__global__ void rows_of(float *y, const float *values, const int *columns, const int *lengths, const float *x, int rows,
                        int width) {
    const int row = (blockIdx.x * 256 + threadIdx.x) / 8, lane = threadIdx.x % 8;
    const int length = row < rows ? lengths[row] : 0;
    float sum = 0;
    for (int i = lane; i < length; i += 8) {
        sum += values[(int64_t)row * width + i] * x[columns[(int64_t)row * width + i]];
    }
    for (int apart = 4; apart > 0; apart /= 2) {
        sum += __shfl_xor_sync(0xffffffff, sum, apart);
    }
    if (row < rows && lane == 0) {
        y[row] = sum;
    }
}

}  // namespace

extern "C" void sparse_rows(float *y, const float *values, const int32_t *columns, const int32_t *lengths, const float *x,
                            int32_t rows, int32_t width, int32_t wide, cudaStream_t stream) {
    (void)wide;
    rows_of<<<(rows + 31) / 32, 256, 0, stream>>>(y, values, columns, lengths, x, rows, width);
}
