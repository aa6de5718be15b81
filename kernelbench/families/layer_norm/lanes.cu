// A row for {{ lanes }} lane(s) of a warp, {{ vector }} number(s) a load, {{ walks }} walk(s) before the result; {{ threads }} threads a block.
#include <stdint.h>

namespace {

constexpr int LANES = {{ lanes }}, THREADS = {{ threads }}, VECTOR = {{ vector }};

struct alignas(4 * VECTOR) Pack {
    float part[VECTOR];
};

__device__ Pack load(const float *from) {
    return *reinterpret_cast<const Pack *>(from);
}

__device__ float all(float sum) {
#pragma unroll
    for (int apart = LANES / 2; apart > 0; apart /= 2) {
        sum += __shfl_xor_sync(0xffffffff, sum, apart);
    }
    return sum;
}

__global__ void __launch_bounds__(THREADS) rows_of(float *y, const float *x, const float *gain, const float *shift,
                                                   int rows, int columns) {
    const int row = (blockIdx.x * THREADS + threadIdx.x) / LANES, start = threadIdx.x % LANES * VECTOR;
    const bool inside = row < rows;
    const int64_t from = (int64_t)(inside ? row : 0) * columns;
    x += from;
    float sum = 0, squares = 0;
    for (int i = start; i < columns; i += LANES * VECTOR) {
        const Pack pack = load(x + i);
#pragma unroll
        for (int p = 0; p < VECTOR; ++p) {
            sum += pack.part[p];
{%- if walks == 1 %}
            squares += pack.part[p] * pack.part[p];
{%- endif %}
        }
    }
    const float mean = all(sum) / columns;
{%- if walks == 1 %}
    const float variance = all(squares) / columns - mean * mean;
{%- else %}
    for (int i = start; i < columns; i += LANES * VECTOR) {
        const Pack pack = load(x + i);
#pragma unroll
        for (int p = 0; p < VECTOR; ++p) {
            squares += (pack.part[p] - mean) * (pack.part[p] - mean);
        }
    }
    const float variance = all(squares) / columns;
{%- endif %}
    const float scale = rsqrtf(variance + 1e-5f);
    if (!inside) {
        return;
    }
    for (int i = start; i < columns; i += LANES * VECTOR) {
        Pack pack = load(x + i);
        const Pack gains = load(gain + i), shifts = load(shift + i);
#pragma unroll
        for (int p = 0; p < VECTOR; ++p) {
            pack.part[p] = (pack.part[p] - mean) * scale * gains.part[p] + shifts.part[p];
        }
        *reinterpret_cast<Pack *>(y + from + i) = pack;
    }
}

}  // namespace

extern "C" void layer_norm(float *y, const float *x, const float *gain, const float *shift, int32_t rows,
                           int32_t columns, cudaStream_t stream) {
    constexpr int own = THREADS / LANES;
    rows_of<<<(rows + own - 1) / own, THREADS, 0, stream>>>(y, x, gain, shift, rows, columns);
}
