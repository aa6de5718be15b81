// y[c][r] = x[r][c], an element a thread.
#include <stdint.h>

namespace {

__global__ void element(float *y, const float *x, int rows, int columns) {
    const int column = blockIdx.x * 32 + threadIdx.x, row = blockIdx.y * 8 + threadIdx.y;
    y[(int64_t)column * rows + row] = x[(int64_t)row * columns + column];
}

}  // namespace

extern "C" void transpose(float *y, const float *x, int32_t rows, int32_t columns, cudaStream_t stream) {
    element<<<dim3(columns / 32, rows / 8), dim3(32, 8), 0, stream>>>(y, x, rows, columns);
}
