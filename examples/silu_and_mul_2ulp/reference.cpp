// out[t][i] = SiLU(x[t][i]) * g[t][i], where a row of the input is x followed by g.
#include <cmath>
#include <cstdint>

extern "C" void silu_and_mul(float* out, const float* input, int64_t tokens, int64_t hidden) {
    for (int64_t token = 0; token < tokens; ++token) {
        const float* x = input + token * 2 * hidden;
        const float* gate = x + hidden;
        for (int64_t i = 0; i < hidden; ++i) {
            const float silu = x[i] / (1.0f + std::exp(-x[i]));
            out[token * hidden + i] = silu * gate[i];
        }
    }
}
