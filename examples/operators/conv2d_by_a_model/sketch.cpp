#include <cstdint>
#include <cstdlib>
#include <cstring>

// The convolution is the product C = A * B of
//   A: filters x depth, the filters as they lie, depth = channels * rows * columns
//   B: depth x pixels, the image under the filter (im2col, never stored whole), pixels = out_height * out_width
//   C: filters x pixels, one image of y.
//
// COMPUTE adds one tile of registers: for 0 <= i < MR, 0 <= j < NR
//   c[i * row_bytes / 4 + j] += sum over 0 <= k < depth of a[k * MR + i] * b[k * NR + j]
// a: packed panel of MR rows, for each k MR floats in sequence, 4-byte aligned; b: packed panel of NR columns, for each k
// NR floats in sequence, 32-byte aligned; c: 4-byte aligned only, rows row_bytes bytes apart. depth is a positive
// multiple of UNROLL. MR x NR / 8 accumulators of 8 floats, NR / 8 loads of b and MR broadcasts of a for each k.
extern "C" void COMPUTE(float *c, const float *a, const float *b, int64_t depth, int64_t row_bytes);

namespace {

constexpr int64_t BM = {{BM}};
constexpr int64_t BN = {{BN}};
constexpr int64_t BK = {{BK}};
constexpr int64_t MR = {{MR}};
constexpr int64_t NR = {{NR}};
constexpr int64_t UNROLL = {{UNROLL}};
constexpr int64_t LANES = 8;  // floats of a vector register

static_assert(BM % MR == 0, "BM must be a multiple of MR");
static_assert(BN % NR == 0, "BN must be a multiple of NR");
static_assert(BK % UNROLL == 0, "BK must be a multiple of UNROLL");
static_assert(NR % LANES == 0, "NR must be a multiple of the lanes");

inline int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
inline int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }
inline int64_t round_up(int64_t a, int64_t unit) { return (a + unit - 1) / unit * unit; }

template <typename T>
T *allocate(int64_t count) {
    const int64_t bytes = round_up(most(count, 1) * (int64_t)sizeof(T), 64);
    return static_cast<T *>(std::aligned_alloc(64, (size_t)bytes));
}

// All filters, depth k0 .. k0 + kc, as panels of MR rows; zeros behind the last row and up to depth kp.
void pack_filters(float *__restrict to, const float *__restrict f, int64_t filters, int64_t depth, int64_t k0, int64_t kc,
                  int64_t kp) {
    for (int64_t i0 = 0; i0 < filters; i0 += MR) {
        const int64_t mr = least(MR, filters - i0);
        const float *__restrict from = f + i0 * depth + k0;
        if (mr == MR) {
            for (int64_t k = 0; k < kc; ++k)
                for (int64_t i = 0; i < MR; ++i) to[k * MR + i] = from[i * depth + k];
        } else {
            for (int64_t k = 0; k < kc; ++k)
                for (int64_t i = 0; i < MR; ++i) to[k * MR + i] = i < mr ? from[i * depth + k] : 0.0f;
        }
        for (int64_t k = kc * MR; k < kp * MR; ++k) to[k] = 0.0f;
        to += kp * MR;
    }
}

// Pixels j0 .. j0 + nc, depth given by the offsets koff[0 .. kc), as panels of NR columns; zeros behind the last column
// and up to depth kp. `image` has its border of zeros already, so there are no edges of the image here.
void pack_image(float *__restrict to, const float *__restrict image, const int64_t *__restrict koff, int64_t kc, int64_t kp,
                int64_t j0, int64_t nc, int64_t wide, int64_t stride, int64_t padded_width) {
    int64_t oy = j0 / wide, ox = j0 % wide;
    for (int64_t jr = 0; jr < nc; jr += NR) {
        const int64_t nr = least(NR, nc - jr);
        int64_t joff[NR];
        for (int64_t j = 0; j < nr; ++j) {
            joff[j] = oy * stride * padded_width + ox * stride;
            if (++ox == wide) {
                ox = 0;
                ++oy;
            }
        }
        for (int64_t j = nr; j < NR; ++j) joff[j] = 0;
        for (int64_t g = 0; g < NR; g += LANES) {
            const int64_t count = most(0, least(LANES, nr - g));
            float *__restrict out = to + g;
            bool in_sequence = count == LANES;
            for (int64_t j = 1; j < count; ++j) in_sequence = in_sequence && joff[g + j] == joff[g] + j;
            if (in_sequence) {
                const float *__restrict from = image + joff[g];
                for (int64_t k = 0; k < kc; ++k) std::memcpy(out + k * NR, from + koff[k], LANES * sizeof(float));
            } else if (count == LANES) {
                for (int64_t k = 0; k < kc; ++k) {
                    const float *__restrict from = image + koff[k];
                    for (int64_t j = 0; j < LANES; ++j) out[k * NR + j] = from[joff[g + j]];
                }
            } else {
                for (int64_t k = 0; k < kc; ++k) {
                    const float *__restrict from = image + koff[k];
                    for (int64_t j = 0; j < count; ++j) out[k * NR + j] = from[joff[g + j]];
                    for (int64_t j = count; j < LANES; ++j) out[k * NR + j] = 0.0f;
                }
            }
        }
        for (int64_t k = kc * NR; k < kp * NR; ++k) to[k] = 0.0f;
        to += kp * NR;
    }
}

}  // namespace

extern "C" void conv2d(float *y, const float *x, const float *f, int64_t batch, int64_t channels, int64_t height, int64_t width,
                       int64_t filters, int64_t rows, int64_t columns, int64_t stride, int64_t pad) {
    const int64_t high = (height + 2 * pad - rows) / stride + 1, wide = (width + 2 * pad - columns) / stride + 1;
    if (batch <= 0 || filters <= 0 || high <= 0 || wide <= 0) return;
    const int64_t pixels = high * wide, depth = channels * rows * columns;
    std::memset(y, 0, (size_t)(batch * filters * pixels) * sizeof(float));
    if (depth <= 0) return;

    // The image with its border of zeros, at least as large as what the filter touches.
    const int64_t padded_height = most(height + 2 * pad, (high - 1) * stride + rows);
    const int64_t padded_width = most(width + 2 * pad, (wide - 1) * stride + columns);
    const bool as_it_is = padded_height == height && padded_width == width;
    float *padded = nullptr;
    if (!as_it_is) {
        padded = allocate<float>(channels * padded_height * padded_width);
        std::memset(padded, 0, (size_t)(channels * padded_height * padded_width) * sizeof(float));
    }

    // Where each step of the depth begins in the padded image.
    int64_t *koff = allocate<int64_t>(depth);
    {
        int64_t k = 0;
        for (int64_t channel = 0; channel < channels; ++channel)
            for (int64_t r = 0; r < rows; ++r)
                for (int64_t s = 0; s < columns; ++s) koff[k++] = (channel * padded_height + r) * padded_width + s;
    }

    // The filters are packed once, block of depth after block of depth.
    const int64_t filters_up = round_up(filters, MR);
    float *packed_a = allocate<float>(filters_up * round_up(depth, UNROLL));
    for (int64_t k0 = 0; k0 < depth; k0 += BK) {
        const int64_t kc = least(BK, depth - k0);
        pack_filters(packed_a + k0 * filters_up, f, filters, depth, k0, kc, round_up(kc, UNROLL));
    }
    float *packed_b = allocate<float>(least(BN, round_up(pixels, NR)) * least(BK, round_up(depth, UNROLL)));
    alignas(64) float tile[MR * NR];

    for (int64_t image = 0; image < batch; ++image) {
        const float *from = x + image * channels * height * width;
        if (!as_it_is) {
            for (int64_t channel = 0; channel < channels; ++channel)
                for (int64_t iy = 0; iy < height; ++iy)
                    std::memcpy(padded + (channel * padded_height + iy + pad) * padded_width + pad,
                                from + (channel * height + iy) * width, (size_t)width * sizeof(float));
            from = padded;
        }
        float *c = y + image * filters * pixels;
        for (int64_t j0 = 0; j0 < pixels; j0 += BN) {
            const int64_t nc = least(BN, pixels - j0);
            for (int64_t k0 = 0; k0 < depth; k0 += BK) {
                const int64_t kc = least(BK, depth - k0), kp = round_up(kc, UNROLL);
                pack_image(packed_b, from, koff + k0, kc, kp, j0, nc, wide, stride, padded_width);
                for (int64_t i0 = 0; i0 < filters; i0 += BM) {
                    const int64_t mc = least(BM, filters - i0);
                    const float *block_a = packed_a + k0 * filters_up + i0 * kp;
                    for (int64_t jr = 0; jr < nc; jr += NR) {
                        const int64_t nr = least(NR, nc - jr);
                        const float *b = packed_b + jr * kp;
                        for (int64_t ir = 0; ir < mc; ir += MR) {
                            const int64_t mr = least(MR, mc - ir);
                            const float *a = block_a + ir * kp;
                            float *out = c + (i0 + ir) * pixels + j0 + jr;
                            if (mr == MR && nr == NR) {
                                COMPUTE(out, a, b, kp, pixels * (int64_t)sizeof(float));
                            } else {
                                std::memset(tile, 0, sizeof tile);
                                COMPUTE(tile, a, b, kp, NR * (int64_t)sizeof(float));
                                for (int64_t i = 0; i < mr; ++i)
                                    for (int64_t j = 0; j < nr; ++j) out[i * pixels + j] += tile[i * NR + j];
                            }
                        }
                    }
                }
            }
        }
    }

    std::free(packed_b);
    std::free(packed_a);
    std::free(koff);
    std::free(padded);
}
