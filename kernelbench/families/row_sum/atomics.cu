// A row for {{ parts }} block(s) of {{ threads }} threads, {{ vector }} number(s) a load; an atomic addition each {{ each }}.
#include <stdint.h>

namespace {

constexpr int PARTS = {{ parts }}, THREADS = {{ threads }}, VECTOR = {{ vector }};

struct alignas(4 * VECTOR) Pack {
    float part[VECTOR];
};

__global__ void zero(float *y, int rows) {
    const int row = blockIdx.x * THREADS + threadIdx.x;
    if (row < rows) {
        y[row] = 0;
    }
}

__global__ void __launch_bounds__(THREADS) rows_of(float *y, const float *x, int columns) {
    const int row = blockIdx.x / PARTS, part = blockIdx.x % PARTS;
    const float *own = x + (int64_t)row * columns;
{%- if each != "element" %}
    float sum = 0;
{%- endif %}
    for (int i = (part * THREADS + threadIdx.x) * VECTOR; i < columns; i += PARTS * THREADS * VECTOR) {
        const Pack pack = *reinterpret_cast<const Pack *>(own + i);
#pragma unroll
        for (int p = 0; p < VECTOR; ++p) {
{%- if each == "element" %}
            atomicAdd(y + row, pack.part[p]);
{%- else %}
            sum += pack.part[p];
{%- endif %}
        }
    }
{%- if each == "thread" %}
    atomicAdd(y + row, sum);
{%- elif each == "warp" %}
    for (int apart = 16; apart > 0; apart /= 2) {
        sum += __shfl_xor_sync(0xffffffff, sum, apart);
    }
    if (threadIdx.x % 32 == 0) {
        atomicAdd(y + row, sum);
    }
{%- endif %}
}

}  // namespace

extern "C" void row_sum(float *y, const float *x, int32_t rows, int32_t columns, cudaStream_t stream) {
    zero<<<(rows + THREADS - 1) / THREADS, THREADS, 0, stream>>>(y, rows);
    rows_of<<<rows * PARTS, THREADS, 0, stream>>>(y, x, columns);
}
