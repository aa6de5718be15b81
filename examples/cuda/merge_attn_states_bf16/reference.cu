// Merges two partial attention results of the same queries, each with the natural logarithm of its sum of exponentials.
// A part with an infinite score saw no keys and counts for nothing; where neither saw any, the result is zero. A thread an
// element, each of which computes the weights anew.
#include <cuda_bf16.h>
#include <stdint.h>

namespace {

__global__ void elements(__nv_bfloat16 *v_out, float *s_out, const __nv_bfloat16 *v_a, const float *s_a, const __nv_bfloat16 *v_b,
                         const float *s_b, int64_t count, int64_t head_dim) {
    const int64_t element = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (element >= count) return;
    const int64_t state = element / head_dim;
    const float a = isinf(s_a[state]) ? -INFINITY : s_a[state];
    const float b = isinf(s_b[state]) ? -INFINITY : s_b[state];
    const float largest = fmaxf(a, b);
    float weight_a = 0.0f, weight_b = 0.0f, sum = 1.0f, score = -INFINITY;
    if (largest != -INFINITY) {
        weight_a = expf(a - largest);
        weight_b = expf(b - largest);
        sum = weight_a + weight_b;
        score = logf(sum) + largest;
    }
    const float value = (weight_a * __bfloat162float(v_a[element]) + weight_b * __bfloat162float(v_b[element])) / sum;
    v_out[element] = __float2bfloat16_rn(value);
    if (element % head_dim == 0) s_out[state] = score;
}

}  // namespace

extern "C" void merge_attn_states(__nv_bfloat16 *v_out, float *s_out, const __nv_bfloat16 *v_a, const float *s_a, const __nv_bfloat16 *v_b,
                                  const float *s_b, int64_t tokens, int64_t heads, int64_t head_dim,
                                  cudaStream_t stream) {
    const int64_t count = tokens * heads * head_dim;
    const unsigned blocks = (unsigned)((count + 255) / 256);
    elements<<<blocks, 256, 0, stream>>>(v_out, s_out, v_a, s_a, v_b, s_b, count, head_dim);
}
