// {{ pixels }} pixel(s) beside each other of {{ own }} filter(s) a thread, read straight from memory; {{ threads }} threads a block.
#include <stdint.h>

namespace {

constexpr int THREADS = {{ threads }}, PIXELS = {{ pixels }}, OWN = {{ own }};

__global__ void __launch_bounds__(THREADS) strip(float *y, const float *x, const float *w, int channels, int filters,
                                                 int height, int width) {
    const int strips = (width + PIXELS - 1) / PIXELS, at = blockIdx.x * THREADS + threadIdx.x;
    const int row = at / strips, left = at % strips * PIXELS, first = blockIdx.y * OWN, image = blockIdx.z;
    if (row >= height) {
        return;
    }
    float sums[OWN][PIXELS] = {};
    for (int c = 0; c < channels; ++c) {
#pragma unroll
        for (int r = 0; r < 3; ++r) {
            const int h = row + r - 1;
            const float *line = x + ((image * channels + c) * height + h) * width;
            float values[PIXELS + 2];
#pragma unroll
            for (int i = 0; i < PIXELS + 2; ++i) {
                const int v = left + i - 1;
                values[i] = h >= 0 && h < height && v >= 0 && v < width ? line[v] : 0;
            }
#pragma unroll
            for (int o = 0; o < OWN; ++o) {
#pragma unroll
                for (int s = 0; s < 3; ++s) {
                    const float weight = w[((first + o) * channels + c) * 9 + r * 3 + s];
#pragma unroll
                    for (int p = 0; p < PIXELS; ++p) {
                        sums[o][p] += values[p + s] * weight;
                    }
                }
            }
        }
    }
#pragma unroll
    for (int o = 0; o < OWN; ++o) {
#pragma unroll
        for (int p = 0; p < PIXELS; ++p) {
            if (left + p < width) {
                y[((image * filters + first + o) * height + row) * width + left + p] = sums[o][p];
            }
        }
    }
}

}  // namespace

extern "C" void conv2d(float *y, const float *x, const float *w, int32_t images, int32_t channels, int32_t filters,
                       int32_t height, int32_t width, cudaStream_t stream) {
    const int strips = (width + PIXELS - 1) / PIXELS * height;
    const dim3 grid((strips + THREADS - 1) / THREADS, filters / OWN, images);
    strip<<<grid, THREADS, 0, stream>>>(y, x, w, channels, filters, height, width);
}
