// A query for a block of {{ threads }} threads, its scores in shared memory, a key a {% if by_warp %}warp{% else %}thread{% endif %}.
#include <math.h>
#include <stdint.h>

namespace {

constexpr int WIDE = 64, THREADS = {{ threads }}, PARTS = THREADS / WIDE;

__global__ void __launch_bounds__(THREADS) queries(float *out, const float *q, const float *k, const float *v, int length) {
    extern __shared__ float scores[];
    __shared__ float own[WIDE], held[THREADS];
    const int64_t head = (int64_t)blockIdx.y * length * WIDE;
    const int thread = threadIdx.x;
    k += head;
    v += head;
    if (thread < WIDE) {
        own[thread] = q[head + blockIdx.x * WIDE + thread] / 8;
    }
    __syncthreads();
{%- if by_warp %}
    const int lane = thread % 32;
    for (int i = thread / 32; i < length; i += THREADS / 32) {
        float score = own[lane] * k[i * WIDE + lane] + own[lane + 32] * k[i * WIDE + lane + 32];
        for (int apart = 16; apart > 0; apart /= 2) {
            score += __shfl_xor_sync(0xffffffff, score, apart);
        }
        if (lane == 0) {
            scores[i] = score;
        }
    }
{%- else %}
    for (int i = thread; i < length; i += THREADS) {
        float score = 0;
        for (int d = 0; d < WIDE; ++d) {
            score += own[d] * k[i * WIDE + d];
        }
        scores[i] = score;
    }
{%- endif %}
    __syncthreads();
    float most = -INFINITY, total = 0, sum = 0;
    for (int i = 0; i < length; ++i) {
        most = fmaxf(most, scores[i]);
    }
    __syncthreads();
    for (int i = thread; i < length; i += THREADS) {
        scores[i] = expf(scores[i] - most);
    }
    __syncthreads();
    for (int i = thread / WIDE; i < length; i += PARTS) {
        total += scores[i];
        sum += scores[i] * v[i * WIDE + thread % WIDE];
    }
    held[thread] = sum;
    __syncthreads();
    for (int part = 1; thread < WIDE && part < PARTS; ++part) {
        sum += held[part * WIDE + thread];
    }
    __syncthreads();
    held[thread] = total;
    __syncthreads();
    for (int part = 1; thread < WIDE && part < PARTS; ++part) {
        total += held[part * WIDE + thread];
    }
    if (thread < WIDE) {
        out[head + blockIdx.x * WIDE + thread] = sum / total;
    }
}

}  // namespace

extern "C" void attention(float *out, const float *q, const float *k, const float *v, int32_t heads, int32_t length,
                          cudaStream_t stream) {
    queries<<<dim3(length, heads), THREADS, length * sizeof(float), stream>>>(out, q, k, v, length);
}
