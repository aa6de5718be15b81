// out = matrix * vector, one thread a row, multiplied and added in the order of the columns. Four numbers of a 16-byte load are
// taken one by one.
#include <stdint.h>

namespace {

__global__ void rows_of(float *out, const float *matrix, const float *vector, int64_t rows, int64_t columns) {
    const int64_t row = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    float sum = 0.0f;
    for (int64_t i = 0; i < columns; i += 4) {
        const float4 x = *reinterpret_cast<const float4 *>(matrix + row * columns + i);
        sum = fmaf(x.x, vector[i], sum);
        sum = fmaf(x.y, vector[i + 1], sum);
        sum = fmaf(x.z, vector[i + 2], sum);
        sum = fmaf(x.w, vector[i + 3], sum);
    }
    out[row] = sum;
}

}  // namespace

extern "C" void apply(float *out, const float *matrix, const float *vector, int64_t rows, int64_t columns, cudaStream_t stream) {
    rows_of<<<(unsigned)((rows + 31) / 32), 32, 0, stream>>>(out, matrix, vector, rows, columns);
}
