// A row for {{ lanes }} lane(s) of a warp, {{ vector }} element(s) a load{% if cached %}, the vector through the read-only cache{% endif %}; {{ threads }} threads a block.
#include <stdint.h>

namespace {

constexpr int LANES = {{ lanes }}, THREADS = {{ threads }}, VECTOR = {{ vector }};

struct alignas(4 * VECTOR) Values {
    float part[VECTOR];
};
struct alignas(4 * VECTOR) Columns {
    int part[VECTOR];
};

__global__ void __launch_bounds__(THREADS) rows_of(float *y, const float *values, const int *columns, const int *lengths,
                                                   const float *x, int rows, int width) {
    const int row = (blockIdx.x * THREADS + threadIdx.x) / LANES, lane = threadIdx.x % LANES;
    const int length = row < rows ? lengths[row] : 0;
    const int64_t start = (int64_t)row * width;
    float sum = 0;
    for (int i = lane * VECTOR; i < length; i += LANES * VECTOR) {
        const Values own = *reinterpret_cast<const Values *>(values + start + i);
        const Columns where = *reinterpret_cast<const Columns *>(columns + start + i);
#pragma unroll
        for (int p = 0; p < VECTOR; ++p) {
            if (i + p < length) {
                sum += own.part[p] * {% if cached %}__ldg(x + where.part[p]){% else %}__ldcg(x + where.part[p]){% endif %};
            }
        }
    }
#pragma unroll
    for (int apart = LANES / 2; apart > 0; apart /= 2) {
        sum += __shfl_xor_sync(0xffffffff, sum, apart);
    }
    if (row < rows && lane == 0) {
        y[row] = sum;
    }
}

}  // namespace

extern "C" void sparse_rows(float *y, const float *values, const int32_t *columns, const int32_t *lengths, const float *x,
                            int32_t rows, int32_t width, int32_t wide, cudaStream_t stream) {
    (void)wide;
    constexpr int own = THREADS / LANES;
    rows_of<<<(rows + own - 1) / own, THREADS, 0, stream>>>(y, values, columns, lengths, x, rows, width);
}
