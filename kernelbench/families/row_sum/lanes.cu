// A row for {{ lanes }} lane(s) of a warp, {{ vector }} number(s) a load, unrolled by {{ unroll }}; {{ threads }} threads a block.
#include <stdint.h>

namespace {

constexpr int LANES = {{ lanes }}, THREADS = {{ threads }}, VECTOR = {{ vector }};

struct alignas(4 * VECTOR) Pack {
    float part[VECTOR];
};

__global__ void __launch_bounds__(THREADS) rows_of(float *y, const float *x, int rows, int columns) {
    const int row = (blockIdx.x * THREADS + threadIdx.x) / LANES, lane = threadIdx.x % LANES;
    const bool inside = row < rows;
    const float *own = x + (int64_t)(inside ? row : 0) * columns;
    float sum = 0;
#pragma unroll {{ unroll }}
    for (int i = lane * VECTOR; i < columns; i += LANES * VECTOR) {
        const Pack pack = *reinterpret_cast<const Pack *>(own + i);
#pragma unroll
        for (int p = 0; p < VECTOR; ++p) {
            sum += pack.part[p];
        }
    }
#pragma unroll
    for (int apart = LANES / 2; apart > 0; apart /= 2) {
        sum += __shfl_xor_sync(0xffffffff, sum, apart);
    }
    if (inside && lane == 0) {
        y[row] = sum;
    }
}

}  // namespace

extern "C" void row_sum(float *y, const float *x, int32_t rows, int32_t columns, cudaStream_t stream) {
    constexpr int own = THREADS / LANES;
    rows_of<<<(rows + own - 1) / own, THREADS, 0, stream>>>(y, x, rows, columns);
}
