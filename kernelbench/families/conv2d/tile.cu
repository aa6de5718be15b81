// Tiles of {{ across }} x {{ down }} pixels and {{ depth }} channel(s) in shared memory; {{ own }} filter(s) a thread.
#include <stdint.h>

namespace {

constexpr int ACROSS = {{ across }}, DOWN = {{ down }}, DEPTH = {{ depth }}, OWN = {{ own }}, THREADS = ACROSS * DOWN;
constexpr int WIDE = ACROSS + 2, HIGH = DOWN + 2;

__global__ void __launch_bounds__(THREADS) tiles(float *y, const float *x, const float *w, int channels, int filters,
                                                 int height, int width) {
    __shared__ float held[DEPTH][HIGH][WIDE];
    __shared__ float weights[DEPTH][9][OWN];
    const int groups = filters / OWN, image = blockIdx.z / groups, first = blockIdx.z % groups * OWN;
    const int left = blockIdx.x * ACROSS, top = blockIdx.y * DOWN;
    const int thread = threadIdx.y * ACROSS + threadIdx.x;
    float sums[OWN] = {};
    for (int from = 0; from < channels; from += DEPTH) {
        for (int at = thread; at < DEPTH * HIGH * WIDE; at += THREADS) {
            const int c = at / (HIGH * WIDE), r = at / WIDE % HIGH, s = at % WIDE, h = top + r - 1, v = left + s - 1;
            const bool inside = h >= 0 && h < height && v >= 0 && v < width;
            held[c][r][s] = inside ? x[((image * channels + from + c) * height + h) * width + v] : 0;
        }
        for (int at = thread; at < OWN * DEPTH * 9; at += THREADS) {
            const int o = at / (DEPTH * 9), c = at / 9 % DEPTH, i = at % 9;
            weights[c][i][o] = w[((first + o) * channels + from + c) * 9 + i];
        }
        __syncthreads();
#pragma unroll
        for (int c = 0; c < DEPTH; ++c) {
#pragma unroll
            for (int i = 0; i < 9; ++i) {
                const float value = held[c][threadIdx.y + i / 3][threadIdx.x + i % 3];
#pragma unroll
                for (int o = 0; o < OWN; ++o) {
                    sums[o] += value * weights[c][i][o];
                }
            }
        }
        __syncthreads();
    }
    const int row = top + threadIdx.y, column = left + threadIdx.x;
    if (row < height && column < width) {
#pragma unroll
        for (int o = 0; o < OWN; ++o) {
            y[((image * filters + first + o) * height + row) * width + column] = sums[o];
        }
    }
}

}  // namespace

extern "C" void conv2d(float *y, const float *x, const float *w, int32_t images, int32_t channels, int32_t filters,
                       int32_t height, int32_t width, cudaStream_t stream) {
    const dim3 grid((width + ACROSS - 1) / ACROSS, (height + DOWN - 1) / DOWN, images * (filters / OWN));
    tiles<<<grid, dim3(ACROSS, DOWN), 0, stream>>>(y, x, w, channels, filters, height, width);
}
