// A query for {{ lanes }} lane(s) of a warp, {% if tile %}tiles of {{ tile }} keys and values in shared memory{% else %}keys and values straight from memory{% endif %}; {{ threads }} threads a block.
#include <math.h>
#include <stdint.h>

namespace {

constexpr int WIDE = 64, LANES = {{ lanes }}, THREADS = {{ threads }}, OWN = WIDE / LANES, QUERIES = THREADS / LANES;
{%- if tile %}
constexpr int TILE = {{ tile }};
{%- endif %}

__global__ void __launch_bounds__(THREADS) queries(float *out, const float *q, const float *k, const float *v, int length) {
    const int64_t head = (int64_t)blockIdx.y * length * WIDE;
    const int at = blockIdx.x * QUERIES + threadIdx.x / LANES, lane = threadIdx.x % LANES;
    const bool inside = at < length;
    k += head;
    v += head;
    float own[OWN], sums[OWN] = {};
#pragma unroll
    for (int d = 0; d < OWN; ++d) {
        own[d] = inside ? q[head + at * WIDE + d * LANES + lane] / 8 : 0;
    }
    float most = -INFINITY, total = 0;
{%- if tile %}
    __shared__ __align__(16) float keys[TILE][WIDE], values[TILE][WIDE];
    for (int from = 0; from < length; from += TILE) {
        __syncthreads();
        for (int i = threadIdx.x * 4; i < TILE * WIDE; i += THREADS * 4) {
            *reinterpret_cast<float4 *>(&keys[0][0] + i) = *reinterpret_cast<const float4 *>(k + from * WIDE + i);
            *reinterpret_cast<float4 *>(&values[0][0] + i) = *reinterpret_cast<const float4 *>(v + from * WIDE + i);
        }
        __syncthreads();
        for (int i = 0; i < TILE; ++i) {
            const float *key = keys[i], *value = values[i];
{%- else %}
    {
        for (int i = 0; i < length; ++i) {
            const float *key = k + i * WIDE, *value = v + i * WIDE;
{%- endif %}
            float score = 0;
#pragma unroll
            for (int d = 0; d < OWN; ++d) {
                score += own[d] * key[d * LANES + lane];
            }
#pragma unroll
            for (int apart = LANES / 2; apart > 0; apart /= 2) {
                score += __shfl_xor_sync(0xffffffff, score, apart);
            }
            const float now = fmaxf(most, score), old = expf(most - now), weight = expf(score - now);
            most = now;
            total = total * old + weight;
#pragma unroll
            for (int d = 0; d < OWN; ++d) {
                sums[d] = sums[d] * old + weight * value[d * LANES + lane];
            }
        }
    }
    if (inside) {
#pragma unroll
        for (int d = 0; d < OWN; ++d) {
            out[head + at * WIDE + d * LANES + lane] = sums[d] / total;
        }
    }
}

}  // namespace

extern "C" void attention(float *out, const float *q, const float *k, const float *v, int32_t heads, int32_t length,
                          cudaStream_t stream) {
    queries<<<dim3((length + QUERIES - 1) / QUERIES, heads), THREADS, 0, stream>>>(out, q, k, v, length);
}
