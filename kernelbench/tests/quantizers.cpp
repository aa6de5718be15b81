// Do MXFP4's conversions in a feature's kernels say what the formats do, number by number? (OCP Microscaling Formats 1.0: E2M1 in
// section 5.3.3, E8M0 in 5.4.1, the scale of a block in 6.3)
#include <cmath>
#include <cstdint>
#include <cstdio>

#define __device__ static
#include CONVERSIONS

static int wrong = 0;

static void expect(const char *what, double of, double expected, double got) {
    if (expected != got && ++wrong < 20) std::printf("%s of %.9g: expected %.9g, got %.9g\n", what, of, expected, got);
}

// In the order of their codes.
static const double SIZES[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};

// The nearest number; of two as near the one with the even code.
static double nearest(double x) {
    int best = 0;
    for (int code = 1; code < 8; ++code) {
        const double before = std::fabs(std::fabs(x) - SIZES[best]), now = std::fabs(std::fabs(x) - SIZES[code]);
        if (now < before || (now == before && code % 2 == 0)) best = code;
    }
    return x < 0 ? -SIZES[best] : SIZES[best];
}

int main() {
    for (uint32_t code = 0; code < 16; ++code) {
        const double size = SIZES[code % 8], value = code < 8 ? size : -size;
        expect("the number", code, value, number(code));
        expect("rounding a number", value, value, rounded(float(value)));
    }
    for (int part = -10 * 1024; part <= 10 * 1024; ++part) {
        const float x = float(part) / 1024;
        expect("rounding", x, nearest(x), rounded(x));
    }
    for (int biased = 1; biased < 255; ++biased) expect("the scale", biased, std::ldexp(1.0, biased - 127), power(biased));
    // Every bfloat16 from 0 on that is finite.
    for (uint32_t bits = 0; bits < 0x7f80; ++bits) {
        const float largest = __builtin_bit_cast(float, bits << 16);
        const int e = largest == 0 ? 0 : std::ilogb(largest);
        expect("a block's exponent", largest, largest == 0 || e < -124 ? 127 : e - 2 + 127, exponent(largest));
    }
    return wrong > 0;
}
