// Smoothing, four numbers a thread and one launch a step: the end of a launch is where blocks wait for each other, and all numbers go
// to memory and back at each.
#include <stdint.h>

namespace {

__device__ float4 other[1 << 19];

__global__ void step(float *out, const float *x, int64_t count) {
    const int64_t first = 4 * ((int64_t)blockIdx.x * blockDim.x + threadIdx.x);
    for (int64_t i = first; i < first + 4 && i < count; ++i) {
        const float left = x[i > 0 ? i - 1 : 0], right = x[i + 1 < count ? i + 1 : i];
        out[i] = 0.25f * (left + right) + 0.5f * x[i];
    }
}

}  // namespace

extern "C" void smooth(float *out, const float *x, int64_t count, int64_t steps, cudaStream_t stream) {
    float *spare = nullptr;
    cudaGetSymbolAddress((void **)&spare, other);
    for (int64_t s = 1; s <= steps; ++s) {
        float *to = (steps - s) % 2 ? spare : out;
        step<<<(unsigned)((count + 1023) / 1024), 256, 0, stream>>>(to, x, count);
        x = to;
    }
}
