// residual += input, then input = residual / rms(residual) * weight, row by row and in place.
#include <cmath>
#include <cstdint>

extern "C" void fused_add_rmsnorm(float* input, float* residual, const float* weight, int64_t tokens, int64_t hidden,
                                  float eps) {
    for (int64_t token = 0; token < tokens; ++token) {
        float* x = input + token * hidden;
        float* r = residual + token * hidden;
        for (int64_t i = 0; i < hidden; ++i) {
            r[i] = x[i] + r[i];
        }
        double squares = 0.0;
        for (int64_t i = 0; i < hidden; ++i) {
            squares += static_cast<double>(r[i]) * r[i];
        }
        const float rms = static_cast<float>(std::sqrt(squares / hidden + eps));
        for (int64_t i = 0; i < hidden; ++i) {
            x[i] = r[i] / rms * weight[i];
        }
    }
}
