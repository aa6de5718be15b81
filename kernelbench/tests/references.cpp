// Do the examples' references compute what the papers' formulas say, in double precision? (Astra, Table 1)
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

extern "C" {
void silu_and_mul(float *, const float *, int64_t, int64_t);
void fused_add_rmsnorm(uint16_t *, uint16_t *, const uint16_t *, int64_t, int64_t, float);
void merge_attn_states(float *, float *, const float *, const float *, const float *, const float *, int64_t, int64_t, int64_t);
}

static std::mt19937 random_bits(1);
static int wrong = 0;

static std::vector<float> normal(int64_t count, double deviation) {
    std::normal_distribution<double> draw(0, deviation);
    std::vector<float> numbers(count);
    for (float &number : numbers) number = float(draw(random_bits));
    return numbers;
}

static void expect(const char *what, double expected, double got) {
    const bool same = expected == got || std::fabs(expected - got) <= 1e-6 + 2e-6 * std::fabs(expected);
    if (!same && ++wrong < 20) std::printf("%s: expected %.9g, got %.9g\n", what, expected, got);
}

static void silu() {
    const int64_t tokens = 3, hidden = 37;
    std::vector<float> input = normal(tokens * 2 * hidden, 5), out(tokens * hidden, NAN);
    input[0] = -200, input[1] = 200, input[2] = 0;
    silu_and_mul(out.data(), input.data(), tokens, hidden);
    for (int64_t t = 0; t < tokens; ++t)
        for (int64_t i = 0; i < hidden; ++i) {
            const double x = input[t * 2 * hidden + i], g = input[t * 2 * hidden + hidden + i];
            expect("silu_and_mul", x / (1 + std::exp(-x)) * g, out[t * hidden + i]);
        }
}

static double wide(uint16_t brain) {
    const uint32_t bits = uint32_t(brain) << 16;
    float value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
}

static std::vector<uint16_t> brains(int64_t count) {
    std::vector<uint16_t> upper_halves;
    for (float number : normal(count, 1)) {
        uint32_t bits;
        std::memcpy(&bits, &number, sizeof bits);
        upper_halves.push_back(uint16_t(bits >> 16));
    }
    return upper_halves;
}

// The nearest bf16 is at most half a step away. frexp gives a fraction from 1/2 to 1, of which a bf16 keeps eight bits.
static void expect_nearest(const char *what, double expected, uint16_t got) {
    int exponent;
    std::frexp(expected, &exponent);
    const double half_a_step = std::ldexp(1.0, exponent - 9);
    if (std::fabs(wide(got) - expected) > half_a_step * 1.001 && ++wrong < 20)
        std::printf("%s: expected the bf16 nearest to %.9g, got %.9g\n", what, expected, wide(got));
}

static void rmsnorm() {
    const int64_t tokens = 3, hidden = 1003;
    const float eps = 1e-2f;
    const std::vector<uint16_t> x = brains(tokens * hidden), r = brains(tokens * hidden), w = brains(hidden);
    std::vector<uint16_t> input = x, residual = r;
    fused_add_rmsnorm(input.data(), residual.data(), w.data(), tokens, hidden, eps);
    for (int64_t t = 0; t < tokens; ++t) {
        const auto sum = [&](int64_t i) { return wide(x[i]) + wide(r[i]); };
        double squares = 0;
        for (int64_t i = t * hidden; i < (t + 1) * hidden; ++i) squares += sum(i) * sum(i);
        for (int64_t i = t * hidden; i < (t + 1) * hidden; ++i) {
            expect_nearest("residual", sum(i), residual[i]);
            expect_nearest("input", sum(i) / std::sqrt(squares / hidden + eps) * wide(w[i - t * hidden]), input[i]);
        }
    }
}

static void merge(float s_a, float s_b, double share_of_a, double s) {
    const int64_t tokens = 1, heads = 2, head_dim = 5;
    const std::vector<float> v_a = normal(heads * head_dim, 1), v_b = normal(heads * head_dim, 1);
    const std::vector<float> scores_a(heads, s_a), scores_b(heads, s_b);
    std::vector<float> v(heads * head_dim, NAN), scores(heads, NAN);
    merge_attn_states(v.data(), scores.data(), v_a.data(), scores_a.data(), v_b.data(), scores_b.data(), tokens, heads, head_dim);
    const double empty = -std::numeric_limits<double>::infinity();
    for (size_t i = 0; i < v.size(); ++i)
        expect("v_out", s == empty ? 0 : share_of_a * v_a[i] + (1 - share_of_a) * v_b[i], v[i]);
    for (float score : scores) expect("s_out", s, score);
}

int main() {
    const float infinity = std::numeric_limits<float>::infinity();
    silu();
    rmsnorm();
    merge(0, 0, 0.5, std::log(2.0));
    merge(1, 3, 1 / (1 + std::exp(2.0)), std::log(std::exp(1.0) + std::exp(3.0)));
    merge(1e4f, 1e4f, 0.5, 1e4 + std::log(2.0));
    merge(-1e4f, 1e4f, 0, 1e4);
    merge(-infinity, 2, 0, 2);
    merge(2, -infinity, 1, 2);
    merge(infinity, 2, 0, 2);
    merge(-infinity, -infinity, 0, -infinity);
    merge(infinity, infinity, 0, -infinity);
    return wrong == 0 ? 0 : 1;
}
