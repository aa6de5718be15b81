// Normalization of rows by blocks that know nothing of each other: two of them share a row, so its sum of squares is the result of
// one launch and the input of the next, which reads the row again.
#include <stdint.h>

namespace {

constexpr int threads = 512;

__device__ float block_sum(float own) {
    __shared__ float sums[threads / 32];
    for (int by = 16; by > 0; by /= 2) own += __shfl_xor_sync(~0u, own, by);
    if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = own;
    __syncthreads();
    own = threadIdx.x % 32 < threads / 32 ? sums[threadIdx.x % 32] : 0.0f;
    for (int by = 16; by > 0; by /= 2) own += __shfl_xor_sync(~0u, own, by);
    return own;
}

__global__ void __launch_bounds__(threads) inverses(float *inverse, const float *x, int columns, float eps) {
    const float4 *row = reinterpret_cast<const float4 *>(x + (int64_t)blockIdx.x * columns);
    float own = 0.0f;
    for (int i = threadIdx.x; i < columns / 4; i += threads) {
        const float4 v = row[i];
        own += v.x * v.x + v.y * v.y + v.z * v.z + v.w * v.w;
    }
    const float sum = block_sum(own);
    if (threadIdx.x == 0) inverse[blockIdx.x] = 1.0f / sqrtf(sum / (float)columns + eps);
}

// Two blocks a row, each for one half.
__global__ void __launch_bounds__(threads) scale(float *out, const float *x, const float *inverse, int columns) {
    const int row = blockIdx.x / 2, quarters = columns / 8;
    const int64_t first = (int64_t)row * columns + blockIdx.x % 2 * (columns / 2);
    const float by = inverse[row];
    for (int i = threadIdx.x; i < quarters; i += threads) {
        const float4 v = reinterpret_cast<const float4 *>(x + first)[i];
        reinterpret_cast<float4 *>(out + first)[i] = make_float4(v.x * by, v.y * by, v.z * by, v.w * by);
    }
}

}  // namespace

extern "C" void normalize(float *out, float *inverse, const float *x, int64_t rows, int64_t columns, float eps,
                          cudaStream_t stream) {
    inverses<<<(unsigned)rows, threads, 0, stream>>>(inverse, x, (int)columns, eps);
    scale<<<(unsigned)(2 * rows), threads, 0, stream>>>(out, x, inverse, (int)columns);
}
