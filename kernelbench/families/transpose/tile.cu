// Tiles of {{ tile }} x {{ tile }} in shared memory, rows padded by {{ pad }}; {{ down }} rows at a time.
#include <stdint.h>

namespace {

constexpr int TILE = {{ tile }}, DOWN = {{ down }}, PAD = {{ pad }};

__global__ void __launch_bounds__(TILE * DOWN) tiles(float *y, const float *x, int rows, int columns) {
    __shared__ float held[TILE][TILE + PAD];
    const int left = blockIdx.x * TILE, top = blockIdx.y * TILE;
#pragma unroll
    for (int row = threadIdx.y; row < TILE; row += DOWN) {
        held[row][threadIdx.x] = x[(int64_t)(top + row) * columns + left + threadIdx.x];
    }
    __syncthreads();
#pragma unroll
    for (int row = threadIdx.y; row < TILE; row += DOWN) {
        y[(int64_t)(left + row) * rows + top + threadIdx.x] = held[threadIdx.x][row];
    }
}

}  // namespace

extern "C" void transpose(float *y, const float *x, int32_t rows, int32_t columns, cudaStream_t stream) {
    tiles<<<dim3(columns / TILE, rows / TILE), dim3(TILE, DOWN), 0, stream>>>(y, x, rows, columns);
}
