// Smoothing, one launch a step and one thread a number, from one buffer to the other; the last step writes to out.
#include <stdint.h>

namespace {

__device__ float other[1 << 21];

__global__ void step(float *out, const float *x, int64_t count) {
    const int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count) return;
    const float left = x[i > 0 ? i - 1 : 0], right = x[i + 1 < count ? i + 1 : i];
    out[i] = 0.25f * (left + right) + 0.5f * x[i];
}

}  // namespace

extern "C" void smooth(float *out, const float *x, int64_t count, int64_t steps, cudaStream_t stream) {
    float *spare = nullptr;
    cudaGetSymbolAddress((void **)&spare, other);
    for (int64_t s = 1; s <= steps; ++s) {
        float *to = (steps - s) % 2 ? spare : out;
        step<<<(unsigned)((count + 255) / 256), 256, 0, stream>>>(to, x, count);
        x = to;
    }
}
