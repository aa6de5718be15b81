// residual += input, then input = sum / rms(sum) * weight, row by row and in place, on bf16.
#include <cmath>
#include <cstdint>
#include <cstring>

namespace {

// A bf16 is the upper half of a float.
float widen(uint16_t bits) {
    const uint32_t wide = static_cast<uint32_t>(bits) << 16;
    float value;
    std::memcpy(&value, &wide, sizeof value);
    return value;
}

// To the nearest bf16, halves to even; no NaN comes here.
uint16_t narrow(float value) {
    uint32_t wide;
    std::memcpy(&wide, &value, sizeof wide);
    return static_cast<uint16_t>((wide + 0x7fff + ((wide >> 16) & 1)) >> 16);
}

}  // namespace

extern "C" void fused_add_rmsnorm(uint16_t* input, uint16_t* residual, const uint16_t* weight, int64_t tokens,
                                  int64_t hidden, float eps) {
    for (int64_t token = 0; token < tokens; ++token) {
        uint16_t* x = input + token * hidden;
        uint16_t* r = residual + token * hidden;
        double squares = 0.0;
        for (int64_t i = 0; i < hidden; ++i) {
            const double sum = static_cast<double>(widen(x[i]) + widen(r[i]));
            squares += sum * sum;
        }
        const double mean = squares / static_cast<double>(hidden);
        const float rms = static_cast<float>(std::sqrt(mean + static_cast<double>(eps)));
        for (int64_t i = 0; i < hidden; ++i) {
            const float sum = widen(x[i]) + widen(r[i]);
            r[i] = narrow(sum);
            x[i] = narrow(sum / rms * widen(weight[i]));
        }
    }
}
