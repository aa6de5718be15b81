#include <cstdint>
#include <immintrin.h>

// One tile of registers: MR = {{MR}} rows by NR = {{NR}} columns of c, single precision.
//   c          first element of the tile, row by row; not necessarily aligned (use unaligned moves)
//   a          packed panel of A: for p = 0 .. depth-1 the MR values a[p * MR + r]; 16-byte aligned
//   b          packed panel of B: for p = 0 .. depth-1 the NR values b[p * NR + j]; 64-byte aligned
//   depth      number of steps p, any number >= 1
//   row_bytes  distance in bytes from one row of c to the next
//   accumulate 0: c = a * b (c is only written, it may hold garbage); otherwise c += a * b
// It writes the whole tile and nothing beside it, and reads nothing behind the panels.
extern "C" void COMPUTE(float *c, const float *a, const float *b, int64_t depth, int64_t row_bytes,
                        int64_t accumulate);

namespace {

constexpr int64_t BM = {{BM}};
constexpr int64_t BN = {{BN}};
constexpr int64_t BK = {{BK}};
constexpr int64_t MR = {{MR}};
constexpr int64_t NR = {{NR}};

static_assert(BM % MR == 0, "BM must be a multiple of MR");
static_assert(BN % NR == 0, "BN must be a multiple of NR");
static_assert(MR % 4 == 0, "MR must be a multiple of 4");
static_assert(NR % 16 == 0, "NR must be a multiple of 16");

// Room for one packed block of A and one of B.
alignas(4096) float packed_a[BM * BK];
alignas(4096) float packed_b[BK * BN];

// rows x depth of A (row length lda) to panels of MR rows, column by column, zeros behind the last row.
void pack_a(float *to, const float *a, int64_t lda, int64_t rows, int64_t depth) {
    for (int64_t i = 0; i < rows; i += MR) {
        const int64_t height = rows - i < MR ? rows - i : MR;
        const float *from = a + i * lda;
        int64_t r = 0;
        for (; r + 4 <= height; r += 4) {
            const float *r0 = from + r * lda;
            const float *r1 = r0 + lda;
            const float *r2 = r1 + lda;
            const float *r3 = r2 + lda;
            float *out = to + r;
            int64_t p = 0;
            for (; p + 4 <= depth; p += 4) {
                __m128 x0 = _mm_loadu_ps(r0 + p);
                __m128 x1 = _mm_loadu_ps(r1 + p);
                __m128 x2 = _mm_loadu_ps(r2 + p);
                __m128 x3 = _mm_loadu_ps(r3 + p);
                _MM_TRANSPOSE4_PS(x0, x1, x2, x3);
                _mm_storeu_ps(out + (p + 0) * MR, x0);
                _mm_storeu_ps(out + (p + 1) * MR, x1);
                _mm_storeu_ps(out + (p + 2) * MR, x2);
                _mm_storeu_ps(out + (p + 3) * MR, x3);
            }
            for (; p < depth; ++p) {
                out[p * MR + 0] = r0[p];
                out[p * MR + 1] = r1[p];
                out[p * MR + 2] = r2[p];
                out[p * MR + 3] = r3[p];
            }
        }
        for (; r < height; ++r) {
            const float *row = from + r * lda;
            for (int64_t p = 0; p < depth; ++p) to[p * MR + r] = row[p];
        }
        for (; r < MR; ++r) {
            for (int64_t p = 0; p < depth; ++p) to[p * MR + r] = 0.0f;
        }
        to += MR * depth;
    }
}

// depth x columns of B (row length ldb) to panels of NR columns, row by row, zeros behind the last column.
__attribute__((target("avx512f")))
void pack_b(float *to, const float *b, int64_t ldb, int64_t depth, int64_t columns) {
    for (int64_t j = 0; j < columns; j += NR) {
        const int64_t width = columns - j < NR ? columns - j : NR;
        const float *from = b + j;
        if (width == NR) {
            for (int64_t p = 0; p < depth; ++p) {
                for (int64_t q = 0; q < NR; q += 16) {
                    _mm512_store_ps(to + q, _mm512_loadu_ps(from + q));
                }
                to += NR;
                from += ldb;
            }
        } else {
            for (int64_t p = 0; p < depth; ++p) {
                int64_t q = 0;
                for (; q < width; ++q) to[q] = from[q];
                for (; q < NR; ++q) to[q] = 0.0f;
                to += NR;
                from += ldb;
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
    alignas(64) float tile[MR * NR];
    for (int64_t jc = 0; jc < n; jc += BN) {
        const int64_t columns = n - jc < BN ? n - jc : BN;
        for (int64_t pc = 0; pc < k; pc += BK) {
            const int64_t depth = k - pc < BK ? k - pc : BK;
            const int64_t accumulate = pc == 0 ? 0 : 1;
            pack_b(packed_b, b + pc * n + jc, n, depth, columns);
            for (int64_t ic = 0; ic < m; ic += BM) {
                const int64_t rows = m - ic < BM ? m - ic : BM;
                pack_a(packed_a, a + ic * k + pc, k, rows, depth);
                for (int64_t jr = 0; jr < columns; jr += NR) {
                    const int64_t width = columns - jr < NR ? columns - jr : NR;
                    const float *strip = packed_b + jr * depth;
                    for (int64_t ir = 0; ir < rows; ir += MR) {
                        const int64_t height = rows - ir < MR ? rows - ir : MR;
                        const float *panel = packed_a + ir * depth;
                        float *to = c + (ic + ir) * n + jc + jr;
                        if (height == MR && width == NR) {
                            COMPUTE(to, panel, strip, depth, n * (int64_t)sizeof(float), accumulate);
                        } else {
                            COMPUTE(tile, panel, strip, depth, NR * (int64_t)sizeof(float), 0);
                            for (int64_t r = 0; r < height; ++r) {
                                float *row = to + r * n;
                                const float *part = tile + r * NR;
                                if (accumulate) {
                                    for (int64_t q = 0; q < width; ++q) row[q] += part[q];
                                } else {
                                    for (int64_t q = 0; q < width; ++q) row[q] = part[q];
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}
