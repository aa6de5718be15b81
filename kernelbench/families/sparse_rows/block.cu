// A row for a block of {{ threads }} threads, whose sums are added by {{ by }}{% if cached %}, the vector through the read-only cache{% endif %}.
#include <stdint.h>

namespace {

constexpr int THREADS = {{ threads }};

__global__ void __launch_bounds__(THREADS) rows_of(float *y, const float *values, const int *columns, const int *lengths,
                                                   const float *x, int width) {
    const int64_t start = (int64_t)blockIdx.x * width;
    const int length = lengths[blockIdx.x], thread = threadIdx.x;
    float sum = 0;
    for (int i = thread; i < length; i += THREADS) {
        sum += values[start + i] * {% if cached %}__ldg(x + columns[start + i]){% else %}__ldcg(x + columns[start + i]){% endif %};
    }
{%- if by == "shuffles" %}
    __shared__ float held[THREADS / 32];
    for (int apart = 16; apart > 0; apart /= 2) {
        sum += __shfl_xor_sync(0xffffffff, sum, apart);
    }
    if (thread % 32 == 0) {
        held[thread / 32] = sum;
    }
    __syncthreads();
    if (thread == 0) {
        for (int warp = 1; warp < THREADS / 32; ++warp) {
            sum += held[warp];
        }
        y[blockIdx.x] = sum;
    }
{%- else %}
    __shared__ float held[THREADS];
    held[thread] = sum;
    __syncthreads();
    for (int half = THREADS / 2; half > 0; half /= 2) {
        if (thread < half) {
            held[thread] += held[thread + half];
        }
        __syncthreads();
    }
    if (thread == 0) {
        y[blockIdx.x] = held[0];
    }
{%- endif %}
}

}  // namespace

extern "C" void sparse_rows(float *y, const float *values, const int32_t *columns, const int32_t *lengths, const float *x,
                            int32_t rows, int32_t width, int32_t wide, cudaStream_t stream) {
    (void)wide;
    rows_of<<<rows, THREADS, 0, stream>>>(y, values, columns, lengths, x, width);
}
