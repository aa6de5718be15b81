#include <cstdint>
#include <immintrin.h>

// One tile of registers, in assembly, System V calling convention:
//   C[i][j] = (accumulate != 0 ? C[i][j] : 0) + sum over p < depth of a[p * MR + i] * b[p * NR + j]
// for 0 <= i < MR and 0 <= j < NR, where C[i] begins at (char *)c + i * row_bytes.
// a: packed panel of MR rows, column by column (MR floats for each p), aligned to 16 bytes.
// b: packed panel of NR columns, row by row (NR floats for each p), aligned to 64 bytes.
// c: aligned to 4 bytes only. With accumulate == 0, C holds garbage and must not be read
// into the result. depth >= 1, any value (not only multiples of an unrolling).
// It must not read behind the panels of a and b in a way that changes the result.
extern "C" void COMPUTE(float *c, const float *a, const float *b, int64_t depth,
                        int64_t row_bytes, int64_t accumulate);

namespace {

constexpr int64_t MR = {{MR}};
constexpr int64_t NR = {{NR}};
constexpr int64_t BK = {{BK}};
// blocks of whole panels
constexpr int64_t BM = ({{BM}} + MR - 1) / MR * MR;
constexpr int64_t BN = ({{BN}} + NR - 1) / NR * NR;
// rows of B that are packed together
constexpr int64_t PR = {{PR}};

static_assert(MR % 4 == 0, "the packing of A transposes 4 x 4");
static_assert(NR % 16 == 0, "a panel of B has whole vectors");

alignas(64) float packed_a[BM * BK];
alignas(64) float packed_b[BN * BK];

inline int64_t least(int64_t x, int64_t y) { return x < y ? x : y; }

// A block of A, rows x depth, as panels of MR rows, column by column.
void pack_a(float *to, const float *a, int64_t stride, int64_t rows, int64_t depth) {
    for (int64_t i = 0; i < rows; i += MR) {
        const float *from = a + i * stride;
        const int64_t here = least(MR, rows - i);
        int64_t p = 0;
        if (here == MR) {
            for (; p + 4 <= depth; p += 4) {
                for (int64_t r = 0; r < MR; r += 4) {
                    const float *s = from + r * stride + p;
                    __m128 x0 = _mm_loadu_ps(s);
                    __m128 x1 = _mm_loadu_ps(s + stride);
                    __m128 x2 = _mm_loadu_ps(s + 2 * stride);
                    __m128 x3 = _mm_loadu_ps(s + 3 * stride);
                    _MM_TRANSPOSE4_PS(x0, x1, x2, x3);
                    float *d = to + p * MR + r;
                    _mm_store_ps(d, x0);
                    _mm_store_ps(d + MR, x1);
                    _mm_store_ps(d + 2 * MR, x2);
                    _mm_store_ps(d + 3 * MR, x3);
                }
            }
        }
        for (; p < depth; ++p) {
            float *d = to + p * MR;
            for (int64_t r = 0; r < here; ++r) d[r] = from[r * stride + p];
            for (int64_t r = here; r < MR; ++r) d[r] = 0.0f;
        }
        to += MR * depth;
    }
}

// NR floats of one row of B.
inline void copy_row(float *to, const float *from) {
#ifdef __AVX512F__
    for (int64_t j = 0; j < NR; j += 16) _mm512_store_ps(to + j, _mm512_loadu_ps(from + j));
#else
    for (int64_t j = 0; j < NR; j += 4) _mm_store_ps(to + j, _mm_loadu_ps(from + j));
#endif
}

// A block of B, depth x columns, as panels of NR columns, row by row.
void pack_b(float *to, const float *b, int64_t stride, int64_t depth, int64_t columns) {
    for (int64_t p0 = 0; p0 < depth; p0 += PR) {
        const int64_t p1 = least(p0 + PR, depth);
        for (int64_t j = 0; j < columns; j += NR) {
            const int64_t here = least(NR, columns - j);
            float *panel = to + j * depth;
            if (here == NR) {
                for (int64_t p = p0; p < p1; ++p) copy_row(panel + p * NR, b + p * stride + j);
            } else {
                for (int64_t p = p0; p < p1; ++p) {
                    float *d = panel + p * NR;
                    const float *s = b + p * stride + j;
                    for (int64_t q = 0; q < here; ++q) d[q] = s[q];
                    for (int64_t q = here; q < NR; ++q) d[q] = 0.0f;
                }
            }
        }
    }
}

}  // namespace

extern "C" void gemm(float* c, const float* a, const float* b, int64_t m, int64_t n, int64_t k) {
    if (m <= 0 || n <= 0) return;
    if (k <= 0) {
        for (int64_t i = 0; i < m * n; ++i) c[i] = 0.0f;
        return;
    }
    const int64_t row_bytes = n * static_cast<int64_t>(sizeof(float));
    alignas(64) float tile[MR * NR];

    for (int64_t jc = 0; jc < n; jc += BN) {
        const int64_t nb = least(BN, n - jc);
        for (int64_t pc = 0; pc < k; pc += BK) {
            const int64_t kb = least(BK, k - pc);
            const int64_t accumulate = pc != 0 ? 1 : 0;
            pack_b(packed_b, b + pc * n + jc, n, kb, nb);
            for (int64_t ic = 0; ic < m; ic += BM) {
                const int64_t mb = least(BM, m - ic);
                pack_a(packed_a, a + ic * k + pc, k, mb, kb);
                for (int64_t jr = 0; jr < nb; jr += NR) {
                    const int64_t columns = least(NR, nb - jr);
                    const float *strip = packed_b + jr * kb;
                    for (int64_t ir = 0; ir < mb; ir += MR) {
                        const int64_t rows = least(MR, mb - ir);
                        const float *panel = packed_a + ir * kb;
                        float *out = c + (ic + ir) * n + jc + jr;
                        if (rows == MR && columns == NR) {
                            COMPUTE(out, panel, strip, kb, row_bytes, accumulate);
                        } else {
                            COMPUTE(tile, panel, strip, kb,
                                    NR * static_cast<int64_t>(sizeof(float)), 0);
                            for (int64_t i = 0; i < rows; ++i) {
                                float *row = out + i * n;
                                const float *part = tile + i * NR;
                                if (accumulate) {
                                    for (int64_t j = 0; j < columns; ++j) row[j] += part[j];
                                } else {
                                    for (int64_t j = 0; j < columns; ++j) row[j] = part[j];
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}
