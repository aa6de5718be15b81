// A row for a block of {{ threads }} threads, {{ vector }} number(s) a load; the threads' sums are added by {{ by }}.
#include <stdint.h>

namespace {

constexpr int THREADS = {{ threads }}, VECTOR = {{ vector }};

struct alignas(4 * VECTOR) Pack {
    float part[VECTOR];
};

__global__ void __launch_bounds__(THREADS) rows_of(float *y, const float *x, int columns) {
    const float *own = x + (int64_t)blockIdx.x * columns;
    const int thread = threadIdx.x;
    float sum = 0;
    for (int i = thread * VECTOR; i < columns; i += THREADS * VECTOR) {
        const Pack pack = *reinterpret_cast<const Pack *>(own + i);
#pragma unroll
        for (int p = 0; p < VECTOR; ++p) {
            sum += pack.part[p];
        }
    }
{%- if by == "shuffles" %}
    __shared__ float held[32];
    for (int apart = 16; apart > 0; apart /= 2) {
        sum += __shfl_xor_sync(0xffffffff, sum, apart);
    }
    if (thread % 32 == 0) {
        held[thread / 32] = sum;
    }
    __syncthreads();
    if (thread < 32) {
        sum = thread < THREADS / 32 ? held[thread] : 0;
        for (int apart = 16; apart > 0; apart /= 2) {
            sum += __shfl_xor_sync(0xffffffff, sum, apart);
        }
        if (thread == 0) {
            y[blockIdx.x] = sum;
        }
    }
{%- else %}
    __shared__ float held[THREADS];
    held[thread] = sum;
    __syncthreads();
{%- if by == "halves" %}
    for (int half = THREADS / 2; half > 0; half /= 2) {
        if (thread < half) {
            held[thread] += held[thread + half];
        }
        __syncthreads();
    }
{%- else %}
    for (int apart = 1; apart < THREADS; apart *= 2) {
        const int at = 2 * apart * thread;
        if (at < THREADS) {
            held[at] += held[at + apart];
        }
        __syncthreads();
    }
{%- endif %}
    if (thread == 0) {
        y[blockIdx.x] = held[0];
    }
{%- endif %}
}

}  // namespace

extern "C" void row_sum(float *y, const float *x, int32_t rows, int32_t columns, cudaStream_t stream) {
    rows_of<<<rows, THREADS, 0, stream>>>(y, x, columns);
}
