// A row for a block of {{ threads }} threads{% if kept %}, kept in shared memory{% endif %}, {{ vector }} number(s) a load, {{ walks }} walk(s) before the result; sums by {{ by }}.
#include <stdint.h>

namespace {

constexpr int THREADS = {{ threads }}, VECTOR = {{ vector }};

struct alignas(4 * VECTOR) Pack {
    float part[VECTOR];
};

__device__ float all(float sum) {
{%- if by == "shuffles" %}
    __shared__ float held[32];
    for (int apart = 16; apart > 0; apart /= 2) {
        sum += __shfl_xor_sync(0xffffffff, sum, apart);
    }
    if (threadIdx.x % 32 == 0) {
        held[threadIdx.x / 32] = sum;
    }
    __syncthreads();
    sum = 0;
    for (int warp = 0; warp < THREADS / 32; ++warp) {
        sum += held[warp];
    }
    __syncthreads();
    return sum;
{%- else %}
    __shared__ float held[THREADS];
    held[threadIdx.x] = sum;
    __syncthreads();
    for (int half = THREADS / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) {
            held[threadIdx.x] += held[threadIdx.x + half];
        }
        __syncthreads();
    }
    sum = held[0];
    __syncthreads();
    return sum;
{%- endif %}
}

__global__ void __launch_bounds__(THREADS) rows_of(float *y, const float *x, const float *gain, const float *shift,
                                                   int columns) {
    x += (int64_t)blockIdx.x * columns;
    y += (int64_t)blockIdx.x * columns;
{%- if kept %}
    extern __shared__ __align__(16) float row[];
{%- else %}
    const float *row = x;
{%- endif %}
    float sum = 0, squares = 0;
    for (int i = threadIdx.x * VECTOR; i < columns; i += THREADS * VECTOR) {
        const Pack pack = *reinterpret_cast<const Pack *>(x + i);
{%- if kept %}
        *reinterpret_cast<Pack *>(row + i) = pack;
{%- endif %}
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
    for (int i = threadIdx.x * VECTOR; i < columns; i += THREADS * VECTOR) {
        const Pack pack = *reinterpret_cast<const Pack *>(row + i);
#pragma unroll
        for (int p = 0; p < VECTOR; ++p) {
            squares += (pack.part[p] - mean) * (pack.part[p] - mean);
        }
    }
    const float variance = all(squares) / columns;
{%- endif %}
    const float scale = rsqrtf(variance + 1e-5f);
    for (int i = threadIdx.x * VECTOR; i < columns; i += THREADS * VECTOR) {
        Pack pack = *reinterpret_cast<const Pack *>(row + i);
        const Pack gains = *reinterpret_cast<const Pack *>(gain + i), shifts = *reinterpret_cast<const Pack *>(shift + i);
#pragma unroll
        for (int p = 0; p < VECTOR; ++p) {
            pack.part[p] = (pack.part[p] - mean) * scale * gains.part[p] + shifts.part[p];
        }
        *reinterpret_cast<Pack *>(y + i) = pack;
    }
}

}  // namespace

extern "C" void layer_norm(float *y, const float *x, const float *gain, const float *shift, int32_t rows,
                           int32_t columns, cudaStream_t stream) {
    rows_of<<<rows, THREADS, {% if kept %}columns * sizeof(float){% else %}0{% endif %}, stream>>>(y, x, gain, shift, columns);
}
