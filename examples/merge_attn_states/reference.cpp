// Merges two partial attention results of the same queries, each with the natural logarithm of its sum of exponentials.
// A part with an infinite score saw no keys and counts for nothing; where neither saw any, the result is zero.
#include <cmath>
#include <cstdint>
#include <limits>

extern "C" void merge_attn_states(float* v_out, float* s_out, const float* v_a, const float* s_a, const float* v_b,
                                  const float* s_b, int64_t tokens, int64_t heads, int64_t head_dim) {
    const float empty = -std::numeric_limits<float>::infinity();
    for (int64_t element = 0; element < tokens * heads * head_dim; ++element) {
        const int64_t state = element / head_dim;
        const float a = std::isinf(s_a[state]) ? empty : s_a[state];
        const float b = std::isinf(s_b[state]) ? empty : s_b[state];
        const float largest = std::fmax(a, b);
        if (largest == empty) {
            v_out[element] = 0.0f;
            s_out[state] = empty;
            continue;
        }
        const float weight_a = std::exp(a - largest);
        const float weight_b = std::exp(b - largest);
        const float sum = weight_a + weight_b;
        v_out[element] = (weight_a * v_a[element] + weight_b * v_b[element]) / sum;
        if (element % head_dim == 0) {
            s_out[state] = std::log(sum) + largest;
        }
    }
}
