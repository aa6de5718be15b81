// Normalization of rows: one thread a row adds the squares in the order of the columns, then one thread a number scales it.
#include <stdint.h>

namespace {

__global__ void inverses(float *inverse, const float *x, int64_t rows, int64_t columns, float eps) {
    const int64_t row = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    float sum = 0.0f;
    for (int64_t i = 0; i < columns; i += 4) {
        const float4 taken = *reinterpret_cast<const float4 *>(x + row * columns + i);
        sum = fmaf(taken.x, taken.x, sum);
        sum = fmaf(taken.y, taken.y, sum);
        sum = fmaf(taken.z, taken.z, sum);
        sum = fmaf(taken.w, taken.w, sum);
    }
    inverse[row] = 1.0f / sqrtf(sum / (float)columns + eps);
}

__global__ void scaled(float *out, const float *x, const float *inverse, int64_t count, int64_t columns) {
    const int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) out[i] = x[i] * inverse[i / columns];
}

}  // namespace

extern "C" void normalize(float *out, float *inverse, const float *x, int64_t rows, int64_t columns, float eps,
                          cudaStream_t stream) {
    inverses<<<(unsigned)((rows + 31) / 32), 32, 0, stream>>>(inverse, x, rows, columns, eps);
    scaled<<<(unsigned)((rows * columns + 255) / 256), 256, 0, stream>>>(out, x, inverse, rows * columns, columns);
}
