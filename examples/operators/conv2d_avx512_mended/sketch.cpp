// y = x * f. For 3x3 filters with stride 1: Winograd F(4x4, 3x3). Tiles of 4x4 outputs become 36 products of matrices,
// M[xi] = V[xi] (tiles x channels) * U[xi] (channels x filters), whose register tiles are MR tiles by NR filters.
// Everything else: a packed product of matrices with the same COMPUTE, MR pixels by NR filters.
#include <cstdint>
#include <cstdlib>
#include <immintrin.h>

// One tile of registers, {{MR}} rows by {{NR}} columns:
//   c[i][j] = (accumulate ? c[i][j] : 0) + sum over k < depth of a[k * 16 + i] * b[k * {{NR}} + j]
// Row i of c begins row_bytes * i bytes behind c. One step of k in a is always 16 floats (64 bytes), of which the first
// {{MR}} count; one step of k in b is {{NR}} floats. a, b, c and row_bytes are multiples of 64 bytes. depth >= 1.
// The sum is formed from zero in registers and c is added at the end. a and b are read from beginning to end, and the
// panel of a for the next call mostly follows directly behind this one.
extern "C" void COMPUTE(float *c, const float *a, const float *b, int64_t depth, int64_t row_bytes, int64_t accumulate);

#pragma GCC target("avx2,fma,avx512f,avx512bw,avx512dq,avx512vl")

namespace {

constexpr int64_t MR = {{MR}};  // tiles (or pixels) of one register tile, at most 15
constexpr int64_t NR = {{NR}};  // filters of one register tile, a multiple of 16
constexpr int64_t BK = {{BK}};  // depth of one call
constexpr int64_t FB = {{FB}};  // filters transformed and used at a time
constexpr int64_t PB = {{PB}};  // panels of tiles transformed at a time
constexpr int64_t AP = 16;      // floats of one step of depth in a panel of A: a cache line, a vector
constexpr int64_t SKEW = 80;    // an odd number of cache lines, against equal cache sets
constexpr int64_t MS = 36 * FB + 16;  // floats from tile to tile in M

static_assert(MR >= 1 && MR <= 15, "MR");
static_assert(NR % 16 == 0 && FB % NR == 0, "NR, FB");

#define ALWAYS static inline __attribute__((always_inline))

ALWAYS int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

// ---- 1-D transforms ----

ALWAYS void input_1d(__m512 d0, __m512 d1, __m512 d2, __m512 d3, __m512 d4, __m512 d5, __m512 &v0, __m512 &v1, __m512 &v2,
                     __m512 &v3, __m512 &v4, __m512 &v5) {
    const __m512 two = _mm512_set1_ps(2.0f), four = _mm512_set1_ps(4.0f), five = _mm512_set1_ps(5.0f);
    const __m512 p = _mm512_fnmadd_ps(four, d2, d4), q = _mm512_fnmadd_ps(four, d1, d3);
    const __m512 r = _mm512_sub_ps(d4, d2), s = _mm512_sub_ps(d3, d1);
    v0 = _mm512_fmadd_ps(four, d0, _mm512_fnmadd_ps(five, d2, d4));
    v1 = _mm512_add_ps(p, q);
    v2 = _mm512_sub_ps(p, q);
    v3 = _mm512_fmadd_ps(two, s, r);
    v4 = _mm512_fnmadd_ps(two, s, r);
    v5 = _mm512_fmadd_ps(four, d1, _mm512_fnmadd_ps(five, d3, d5));
}

ALWAYS void filter_1d(__m512 g0, __m512 g1, __m512 g2, __m512 *u) {
    const __m512 sixth = _mm512_set1_ps(1.0f / 6.0f), twelfth = _mm512_set1_ps(1.0f / 12.0f);
    const __m512 part24 = _mm512_set1_ps(1.0f / 24.0f), quarter = _mm512_set1_ps(0.25f), minus = _mm512_set1_ps(-1.0f / 6.0f);
    const __m512 s = _mm512_mul_ps(_mm512_add_ps(g0, g2), minus);
    const __m512 r = _mm512_fmadd_ps(g0, part24, _mm512_mul_ps(g2, sixth));
    u[0] = _mm512_mul_ps(g0, quarter);
    u[1] = _mm512_fnmadd_ps(g1, sixth, s);
    u[2] = _mm512_fmadd_ps(g1, sixth, s);
    u[3] = _mm512_fmadd_ps(g1, twelfth, r);
    u[4] = _mm512_fnmadd_ps(g1, twelfth, r);
    u[5] = g2;
}

ALWAYS void output_1d(__m512 m0, __m512 m1, __m512 m2, __m512 m3, __m512 m4, __m512 m5, __m512 &o0, __m512 &o1, __m512 &o2,
                      __m512 &o3) {
    const __m512 two = _mm512_set1_ps(2.0f), four = _mm512_set1_ps(4.0f), eight = _mm512_set1_ps(8.0f);
    const __m512 s1 = _mm512_add_ps(m1, m2), d1 = _mm512_sub_ps(m1, m2);
    const __m512 s2 = _mm512_add_ps(m3, m4), d2 = _mm512_sub_ps(m3, m4);
    o0 = _mm512_add_ps(_mm512_add_ps(m0, s1), s2);
    o1 = _mm512_fmadd_ps(two, d2, d1);
    o2 = _mm512_fmadd_ps(four, s2, s1);
    o3 = _mm512_fmadd_ps(eight, d2, _mm512_add_ps(d1, m5));
}

// ---- input: up to 15 neighbouring tiles of one row of tiles, all channels ----

// One row of the image under the tiles, taken apart into the six columns of the tiles, and transformed along the row.
ALWAYS void input_row(const float *s, __mmask16 k0, __mmask16 k1, __mmask16 k2, __mmask16 k3, __m512 *t) {
    const __m512i even = _mm512_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28, 1, 5, 9, 13, 17, 21, 25, 29);
    const __m512i odd = _mm512_setr_epi32(2, 6, 10, 14, 18, 22, 26, 30, 3, 7, 11, 15, 19, 23, 27, 31);
    const __m512 v0 = _mm512_maskz_loadu_ps(k0, s), v1 = _mm512_maskz_loadu_ps(k1, s + 16);
    const __m512 v2 = _mm512_maskz_loadu_ps(k2, s + 32), v3 = _mm512_maskz_loadu_ps(k3, s + 48);
    const __m512 a = _mm512_permutex2var_ps(v0, even, v1), b = _mm512_permutex2var_ps(v2, even, v3);
    const __m512 e = _mm512_permutex2var_ps(v0, odd, v1), h = _mm512_permutex2var_ps(v2, odd, v3);
    const __m512 c0 = _mm512_shuffle_f32x4(a, b, 0x44), c1 = _mm512_shuffle_f32x4(a, b, 0xEE);
    const __m512 c2 = _mm512_shuffle_f32x4(e, h, 0x44), c3 = _mm512_shuffle_f32x4(e, h, 0xEE);
    const __m512 c4 = _mm512_castsi512_ps(_mm512_alignr_epi32(_mm512_castps_si512(c0), _mm512_castps_si512(c0), 1));
    const __m512 c5 = _mm512_castsi512_ps(_mm512_alignr_epi32(_mm512_castps_si512(c1), _mm512_castps_si512(c1), 1));
    input_1d(c0, c1, c2, c3, c4, c5, t[0], t[1], t[2], t[3], t[4], t[5]);
}

template <bool WHOLE>
ALWAYS void put(float *to, __mmask16 mask, __m512 v) {
    if (WHOLE)
        _mm512_store_ps(to, v);
    else
        _mm512_mask_storeu_ps(to, mask, v);
}

template <bool WHOLE>
ALWAYS void input_column(float *to, int64_t vs, __mmask16 mask, const __m512 *t, int c) {
    __m512 v0, v1, v2, v3, v4, v5;
    input_1d(t[c], t[6 + c], t[12 + c], t[18 + c], t[24 + c], t[30 + c], v0, v1, v2, v3, v4, v5);
    put<WHOLE>(to + (0 + c) * vs, mask, v0);
    put<WHOLE>(to + (6 + c) * vs, mask, v1);
    put<WHOLE>(to + (12 + c) * vs, mask, v2);
    put<WHOLE>(to + (18 + c) * vs, mask, v3);
    put<WHOLE>(to + (24 + c) * vs, mask, v4);
    put<WHOLE>(to + (30 + c) * vs, mask, v5);
}

alignas(64) const float zeros[64] = {0.0f};

template <bool WHOLE>
__attribute__((noinline)) void input_segment(float *to, int64_t vs, const float *x, int64_t channels, int64_t height, int64_t width,
                                             int64_t iy, int64_t ix, int64_t off) {
    const int64_t plane = height * width;
    const float *src[6];
    int64_t step[6];
    for (int r = 0; r < 6; ++r) {
        const bool in = iy + r >= 0 && iy + r < height;
        src[r] = in ? x + (iy + r) * width + ix : zeros;
        step[r] = in ? plane : 0;
    }
    __mmask16 k[4];
    for (int q = 0; q < 4; ++q) {
        unsigned bits = 0;
        for (int l = 0; l < 16; ++l) {
            const int64_t column = ix + 16 * q + l;
            if (column >= 0 && column < width) bits |= 1u << l;
        }
        k[q] = (__mmask16)bits;
    }
    const __mmask16 k0 = k[0], k1 = k[1], k2 = k[2], k3 = k[3];
    const __mmask16 mask = (__mmask16)((1u << (16 - off)) - 1u);
    const float *s0 = src[0], *s1 = src[1], *s2 = src[2], *s3 = src[3], *s4 = src[4], *s5 = src[5];
    const int64_t ahead = 2 * plane;
    for (int64_t channel = 0; channel < channels; ++channel) {
        __m512 t[36];
        const float *near = s2 + ahead;
        const float *mid = s3 + ahead;
        for (int q = 0; q < 64; q += 16) {
            _mm_prefetch((const char *)(s0 + ahead + q), _MM_HINT_T0);
            _mm_prefetch((const char *)(s1 + ahead + q), _MM_HINT_T0);
            _mm_prefetch((const char *)(near + q), _MM_HINT_T0);
            _mm_prefetch((const char *)(mid + q), _MM_HINT_T0);
            _mm_prefetch((const char *)(s4 + ahead + q), _MM_HINT_T0);
            _mm_prefetch((const char *)(s5 + ahead + q), _MM_HINT_T0);
        }
        input_row(s0, k0, k1, k2, k3, t);
        input_row(s1, k0, k1, k2, k3, t + 6);
        input_row(s2, k0, k1, k2, k3, t + 12);
        input_row(s3, k0, k1, k2, k3, t + 18);
        input_row(s4, k0, k1, k2, k3, t + 24);
        input_row(s5, k0, k1, k2, k3, t + 30);
        input_column<WHOLE>(to, vs, mask, t, 0);
        input_column<WHOLE>(to, vs, mask, t, 1);
        input_column<WHOLE>(to, vs, mask, t, 2);
        input_column<WHOLE>(to, vs, mask, t, 3);
        input_column<WHOLE>(to, vs, mask, t, 4);
        input_column<WHOLE>(to, vs, mask, t, 5);
        s0 += step[0];
        s1 += step[1];
        s2 += step[2];
        s3 += step[3];
        s4 += step[4];
        s5 += step[5];
        to += AP;
    }
}

// Panels first .. first + panels of the tiles of one image: V[xi][panel][channel][AP].
void input_block(float *v, int64_t vs, const float *x, int64_t channels, int64_t height, int64_t width, int64_t pad, int64_t first,
                 int64_t panels, int64_t tiles, int64_t tiles_wide) {
    for (int64_t p = 0; p < panels; ++p) {
        const int64_t begin = (first + p) * MR, end = least(begin + MR, tiles);
        float *panel = v + p * channels * AP;
        for (int64_t tile = begin; tile < end;) {
            const int64_t ty = tile / tiles_wide, tx = tile % tiles_wide;
            const int64_t n = least(end - tile, tiles_wide - tx), off = tile - begin;
            if (off == 0)
                input_segment<true>(panel, vs, x, channels, height, width, ty * 4 - pad, tx * 4 - pad, 0);
            else
                input_segment<false>(panel + off, vs, x, channels, height, width, ty * 4 - pad, tx * 4 - pad, off);
            tile += n;
        }
    }
}

// ---- filters: 16 at a time, U[xi][panel][channel][NR] ----

ALWAYS void quad(const __m512 *r, __m512 *q) {
    const __m512 t0 = _mm512_unpacklo_ps(r[0], r[1]), t1 = _mm512_unpackhi_ps(r[0], r[1]);
    const __m512 t2 = _mm512_unpacklo_ps(r[2], r[3]), t3 = _mm512_unpackhi_ps(r[2], r[3]);
    q[0] = _mm512_castpd_ps(_mm512_unpacklo_pd(_mm512_castps_pd(t0), _mm512_castps_pd(t2)));
    q[1] = _mm512_castpd_ps(_mm512_unpackhi_pd(_mm512_castps_pd(t0), _mm512_castps_pd(t2)));
    q[2] = _mm512_castpd_ps(_mm512_unpacklo_pd(_mm512_castps_pd(t1), _mm512_castps_pd(t3)));
    q[3] = _mm512_castpd_ps(_mm512_unpackhi_pd(_mm512_castps_pd(t1), _mm512_castps_pd(t3)));
}

ALWAYS void lanes(float *to, const __m512 *q, int j) {
    const __m512 x0 = _mm512_shuffle_f32x4(q[j], q[4 + j], 0x44), x1 = _mm512_shuffle_f32x4(q[8 + j], q[12 + j], 0x44);
    const __m512 x2 = _mm512_shuffle_f32x4(q[j], q[4 + j], 0xEE), x3 = _mm512_shuffle_f32x4(q[8 + j], q[12 + j], 0xEE);
    _mm512_store_ps(to + j * 16, _mm512_shuffle_f32x4(x0, x1, 0x88));
    _mm512_store_ps(to + (4 + j) * 16, _mm512_shuffle_f32x4(x0, x1, 0xDD));
    _mm512_store_ps(to + (8 + j) * 16, _mm512_shuffle_f32x4(x2, x3, 0x88));
    _mm512_store_ps(to + (12 + j) * 16, _mm512_shuffle_f32x4(x2, x3, 0xDD));
}

ALWAYS __m512 filter_load(const float *from, __mmask16 mask) {
    _mm_prefetch((const char *)(from + 144), _MM_HINT_T0);
    return _mm512_maskz_loadu_ps(mask, from);
}

ALWAYS void filter_rows(float *u, int64_t us, const __m512 *w, int i) {
    __m512 o[6];
    filter_1d(w[i], w[6 + i], w[12 + i], o);
    _mm512_store_ps(u + (6 * i + 0) * us, o[0]);
    _mm512_store_ps(u + (6 * i + 1) * us, o[1]);
    _mm512_store_ps(u + (6 * i + 2) * us, o[2]);
    _mm512_store_ps(u + (6 * i + 3) * us, o[3]);
    _mm512_store_ps(u + (6 * i + 4) * us, o[4]);
    _mm512_store_ps(u + (6 * i + 5) * us, o[5]);
}

void filter_group(float *u, int64_t us, const float *f, int64_t channels, int64_t present) {
    alignas(64) float turned[144 * 16];
    const int64_t stride = channels * 9;
    for (int64_t from = 0; from < channels; from += 16) {
        const int64_t count = least(16, channels - from);
        for (int64_t b = 0; b < 9; ++b) {
            const int64_t left = least(16, count * 9 - b * 16);
            if (left <= 0) break;
            const __mmask16 mask = (__mmask16)((1u << left) - 1u);
            const float *s = f + from * 9 + b * 16;
            __m512 r[16], q[16];
            if (present == 16) {
                r[0] = filter_load(s, mask);
                r[1] = filter_load(s + stride, mask);
                r[2] = filter_load(s + 2 * stride, mask);
                r[3] = filter_load(s + 3 * stride, mask);
                r[4] = filter_load(s + 4 * stride, mask);
                r[5] = filter_load(s + 5 * stride, mask);
                r[6] = filter_load(s + 6 * stride, mask);
                r[7] = filter_load(s + 7 * stride, mask);
                r[8] = filter_load(s + 8 * stride, mask);
                r[9] = filter_load(s + 9 * stride, mask);
                r[10] = filter_load(s + 10 * stride, mask);
                r[11] = filter_load(s + 11 * stride, mask);
                r[12] = filter_load(s + 12 * stride, mask);
                r[13] = filter_load(s + 13 * stride, mask);
                r[14] = filter_load(s + 14 * stride, mask);
                r[15] = filter_load(s + 15 * stride, mask);
            } else {
                for (int64_t l = 0; l < 16; ++l)
                    r[l] = l < present ? _mm512_maskz_loadu_ps(mask, s + l * stride) : _mm512_setzero_ps();
            }
            quad(r, q);
            quad(r + 4, q + 4);
            quad(r + 8, q + 8);
            quad(r + 12, q + 12);
            float *to = turned + b * 256;
            lanes(to, q, 0);
            lanes(to, q, 1);
            lanes(to, q, 2);
            lanes(to, q, 3);
        }
        for (int64_t c = 0; c < count; ++c) {
            const float *g = turned + c * 144;
            float *to = u + (from + c) * NR;
            __m512 w[18];
            filter_1d(_mm512_load_ps(g), _mm512_load_ps(g + 48), _mm512_load_ps(g + 96), w);
            filter_1d(_mm512_load_ps(g + 16), _mm512_load_ps(g + 64), _mm512_load_ps(g + 112), w + 6);
            filter_1d(_mm512_load_ps(g + 32), _mm512_load_ps(g + 80), _mm512_load_ps(g + 128), w + 12);
            filter_rows(to, us, w, 0);
            filter_rows(to, us, w, 1);
            filter_rows(to, us, w, 2);
            filter_rows(to, us, w, 3);
            filter_rows(to, us, w, 4);
            filter_rows(to, us, w, 5);
        }
    }
}

void filter_block(float *u, int64_t us, const float *f, int64_t channels, int64_t first, int64_t panels, int64_t filters) {
    for (int64_t g = 0; g < panels * NR; g += 16) {
        int64_t present = least(16, filters - first - g);
        if (present < 0) present = 0;
        float *to = u + (g / NR) * channels * NR + g % NR;
        filter_group(to, us, f + (present > 0 ? (first + g) * channels * 9 : 0), channels, present);
    }
}

// ---- output: M[tile][xi][FB] to y ----

ALWAYS void output_lane(float *to, int64_t plane4, __m512 r) {
    _mm_storeu_ps(to, _mm512_castps512_ps128(r));
    _mm_storeu_ps(to + plane4, _mm512_extractf32x4_ps(r, 1));
    _mm_storeu_ps(to + 2 * plane4, _mm512_extractf32x4_ps(r, 2));
    _mm_storeu_ps(to + 3 * plane4, _mm512_extractf32x4_ps(r, 3));
}

ALWAYS void output_row(float *to, int64_t plane, const __m512 *o) {
    __m512 q[4];
    quad(o, q);
    output_lane(to, 4 * plane, q[0]);
    output_lane(to + plane, 4 * plane, q[1]);
    output_lane(to + 2 * plane, 4 * plane, q[2]);
    output_lane(to + 3 * plane, 4 * plane, q[3]);
}

ALWAYS void output_column(const float *m, __m512 *t, int c) {
    output_1d(_mm512_load_ps(m + (0 + c) * FB), _mm512_load_ps(m + (6 + c) * FB), _mm512_load_ps(m + (12 + c) * FB),
              _mm512_load_ps(m + (18 + c) * FB), _mm512_load_ps(m + (24 + c) * FB), _mm512_load_ps(m + (30 + c) * FB), t[c], t[6 + c],
              t[12 + c], t[18 + c]);
}

void output_block(float *y, const float *m, int64_t first, int64_t count, int64_t tiles_wide, int64_t high, int64_t wide,
                  int64_t filters) {
    const int64_t plane = high * wide;
    for (int64_t i = 0; i < count; ++i) {
        const int64_t ty = (first + i) / tiles_wide, tx = (first + i) % tiles_wide;
        const int64_t down = least(4, high - ty * 4), across = least(4, wide - tx * 4);
        float *at = y + ty * 4 * wide + tx * 4;
        for (int64_t g = 0; g < filters; g += 16) {
            const float *from = m + i * MS + g;
            const int64_t present = least(16, filters - g);
            __m512 t[24], o[16];
            output_column(from, t, 0);
            output_column(from, t, 1);
            output_column(from, t, 2);
            output_column(from, t, 3);
            output_column(from, t, 4);
            output_column(from, t, 5);
            output_1d(t[0], t[1], t[2], t[3], t[4], t[5], o[0], o[1], o[2], o[3]);
            output_1d(t[6], t[7], t[8], t[9], t[10], t[11], o[4], o[5], o[6], o[7]);
            output_1d(t[12], t[13], t[14], t[15], t[16], t[17], o[8], o[9], o[10], o[11]);
            output_1d(t[18], t[19], t[20], t[21], t[22], t[23], o[12], o[13], o[14], o[15]);
            float *to = at + g * plane;
            if (down == 4 && across == 4 && present == 16) {
                output_row(to, plane, o);
                output_row(to + wide, plane, o + 4);
                output_row(to + 2 * wide, plane, o + 8);
                output_row(to + 3 * wide, plane, o + 12);
            } else {
                alignas(64) float whole[256];
                for (int e = 0; e < 16; ++e) _mm512_store_ps(whole + 16 * e, o[e]);
                for (int64_t l = 0; l < present; ++l)
                    for (int64_t r = 0; r < down; ++r)
                        for (int64_t s = 0; s < across; ++s) to[l * plane + r * wide + s] = whole[(r * 4 + s) * 16 + l];
            }
        }
    }
}

float *aligned(void *memory) { return (float *)(((uintptr_t)memory + 4095) & ~(uintptr_t)4095); }

void winograd(float *y, const float *x, const float *f, int64_t batch, int64_t channels, int64_t height, int64_t width,
              int64_t filters, int64_t pad, int64_t high, int64_t wide) {
    const int64_t tiles_wide = (wide + 3) / 4, tiles = tiles_wide * ((high + 3) / 4);
    const int64_t all_panels = (tiles + MR - 1) / MR, most = least(PB, all_panels);
    const int64_t vs = most * channels * AP + SKEW, us = FB * channels + SKEW;
    const int64_t floats = 36 * vs + 36 * us + most * MR * MS + 64;
    void *memory = malloc((size_t)floats * sizeof(float) + 4096);
    if (!memory) return;
    float *v = aligned(memory), *u = v + 36 * vs, *m = u + 36 * us;
    for (int64_t image = 0; image < batch; ++image) {
        const float *from = x + image * channels * height * width;
        float *to = y + image * filters * high * wide;
        for (int64_t first = 0; first < all_panels; first += PB) {
            const int64_t panels = least(PB, all_panels - first);
            input_block(v, vs, from, channels, height, width, pad, first, panels, tiles, tiles_wide);
            for (int64_t filter = 0; filter < filters; filter += FB) {
                const int64_t present = least(FB, filters - filter), strips = (present + NR - 1) / NR;
                filter_block(u, us, f, channels, filter, strips, filters);
                for (int64_t xi = 0; xi < 36; ++xi)
                    for (int64_t k = 0; k < channels; k += BK) {
                        const int64_t depth = least(BK, channels - k);
                        for (int64_t j = 0; j < strips; ++j) {
                            const float *b = u + xi * us + (j * channels + k) * NR;
                            for (int64_t p = 0; p < panels; ++p)
                                COMPUTE(m + p * MR * MS + xi * FB + j * NR, v + xi * vs + (p * channels + k) * AP, b, depth,
                                        MS * (int64_t)sizeof(float), k > 0);
                        }
                    }
                output_block(to + filter * high * wide, m, first * MR, least(panels * MR, tiles - first * MR), tiles_wide, high, wide,
                             present);
            }
        }
    }
    free(memory);
}

// Any filter, any stride: pixels as rows, filters as columns, channels * rows * columns as depth.
void general(float *y, const float *x, const float *f, int64_t batch, int64_t channels, int64_t height, int64_t width, int64_t filters,
             int64_t rows, int64_t columns, int64_t stride, int64_t pad, int64_t high, int64_t wide) {
    const int64_t depth = channels * rows * columns, pixels = high * wide, strips = (filters + NR - 1) / NR;
    void *memory = malloc((size_t)(strips * NR * depth + depth * AP + 64) * sizeof(float) + 4096);
    if (!memory) return;
    float *b = aligned(memory), *a = b + strips * NR * depth;
    for (int64_t j = 0; j < strips; ++j)
        for (int64_t l = 0; l < NR; ++l) {
            const int64_t filter = j * NR + l;
            float *to = b + j * NR * depth + l;
            for (int64_t k = 0; k < depth; ++k) to[k * NR] = filter < filters ? f[filter * depth + k] : 0.0f;
        }
    for (int64_t image = 0; image < batch; ++image)
        for (int64_t pixel = 0; pixel < pixels; pixel += MR) {
            const int64_t count = least(MR, pixels - pixel);
            for (int64_t l = 0; l < AP; ++l) {
                const bool there = l < count;
                const int64_t iy0 = there ? (pixel + l) / wide * stride - pad : 0;
                const int64_t ix0 = there ? (pixel + l) % wide * stride - pad : 0;
                float *to = a + l;
                for (int64_t channel = 0; channel < channels; ++channel) {
                    const float *from = x + (image * channels + channel) * height * width;
                    for (int64_t r = 0; r < rows; ++r)
                        for (int64_t s = 0; s < columns; ++s) {
                            const int64_t iy = iy0 + r, ix = ix0 + s;
                            const bool in = there && iy >= 0 && iy < height && ix >= 0 && ix < width;
                            *to = in ? from[iy * width + ix] : 0.0f;
                            to += AP;
                        }
                }
            }
            for (int64_t j = 0; j < strips; ++j) {
                alignas(64) float tile[MR * NR];
                for (int64_t k = 0; k < depth; k += BK)
                    COMPUTE(tile, a + k * AP, b + (j * depth + k) * NR, least(BK, depth - k), NR * (int64_t)sizeof(float), k > 0);
                const int64_t present = least(NR, filters - j * NR);
                for (int64_t l = 0; l < present; ++l) {
                    float *to = y + (image * filters + j * NR + l) * pixels + pixel;
                    for (int64_t i = 0; i < count; ++i) to[i] = tile[i * NR + l];
                }
            }
        }
    free(memory);
}

}  // namespace

extern "C" void conv2d(float *y, const float *x, const float *f, int64_t batch, int64_t channels, int64_t height, int64_t width,
                       int64_t filters, int64_t rows, int64_t columns, int64_t stride, int64_t pad) {
    if (height + 2 * pad < rows || width + 2 * pad < columns) return;
    const int64_t high = (height + 2 * pad - rows) / stride + 1, wide = (width + 2 * pad - columns) / stride + 1;
    if (batch <= 0 || filters <= 0 || high <= 0 || wide <= 0) return;
    if (channels * rows * columns <= 0) {
        for (int64_t i = 0; i < batch * filters * high * wide; ++i) y[i] = 0.0f;
        return;
    }
    if (rows == 3 && columns == 3 && stride == 1 && channels >= 32)
        winograd(y, x, f, batch, channels, height, width, filters, pad, high, wide);
    else
        general(y, x, f, batch, channels, height, width, filters, rows, columns, stride, pad, high, wide);
}
