#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <xmmintrin.h>

// COMPUTE: one tile of MR x NR, added to what c holds:
//     c[i][j] += sum over p < depth of a[p * MR + i] * b[p * NR + j]
// with MR = {{MR}} and NR = {{NR}}.
//   c         the tile's first element, aligned to 4 bytes only (use unaligned
//             loads and stores); row i begins at (char *)c + i * row_bytes
//   a         packed panel of A: for each p, MR floats in a row (no alignment
//             beyond 4 bytes is promised; broadcast its elements)
//   b         packed panel of B: for each p, NR floats in a row, the panel
//             aligned to 32 bytes
//   depth     positive and always a multiple of UNROLL = {{UNROLL}}, so that the
//             loop may take UNROLL steps per turn and needs no remainder
//   row_bytes distance of two rows of c, in bytes
// a and b must not be read beyond depth steps.
extern "C" void COMPUTE(float *c, const float *a, const float *b, int64_t depth, int64_t row_bytes);

namespace {

constexpr int64_t kBM = {{BM}};
constexpr int64_t kBN = {{BN}};
constexpr int64_t kBK = {{BK}};
constexpr int64_t kMR = {{MR}};
constexpr int64_t kNR = {{NR}};
constexpr int64_t kUnroll = {{UNROLL}};

static_assert(kBM % kMR == 0, "a block of A holds whole panels");
static_assert(kBN % kNR == 0, "a block of B holds whole panels");
static_assert(kBK % kUnroll == 0, "a block's depth holds whole turns");
static_assert(kMR % 2 == 0 && kUnroll % 2 == 0 && kNR % 8 == 0, "panels stay aligned");

inline int64_t smaller(int64_t x, int64_t y) { return x < y ? x : y; }

// Block of A, rows x depth, as panels of MR rows, column by column.
// Each panel is MR * padded floats; zeros behind the last row and column.
void pack_a(float *__restrict to, const float *__restrict from, int64_t stride,
            int64_t rows, int64_t depth, int64_t padded) {
    for (int64_t i0 = 0; i0 < rows; i0 += kMR) {
        const float *src = from + i0 * stride;
        const int64_t have = smaller(kMR, rows - i0);
        int64_t p = 0;
        if (have == kMR) {
            for (; p + 4 <= depth; p += 4) {
                float *dst = to + p * kMR;
                int64_t i = 0;
                for (; i + 4 <= kMR; i += 4) {
                    __m128 r0 = _mm_loadu_ps(src + (i + 0) * stride + p);
                    __m128 r1 = _mm_loadu_ps(src + (i + 1) * stride + p);
                    __m128 r2 = _mm_loadu_ps(src + (i + 2) * stride + p);
                    __m128 r3 = _mm_loadu_ps(src + (i + 3) * stride + p);
                    _MM_TRANSPOSE4_PS(r0, r1, r2, r3);
                    _mm_storeu_ps(dst + 0 * kMR + i, r0);
                    _mm_storeu_ps(dst + 1 * kMR + i, r1);
                    _mm_storeu_ps(dst + 2 * kMR + i, r2);
                    _mm_storeu_ps(dst + 3 * kMR + i, r3);
                }
                for (; i + 2 <= kMR; i += 2) {
                    const __m128 r0 = _mm_loadu_ps(src + (i + 0) * stride + p);
                    const __m128 r1 = _mm_loadu_ps(src + (i + 1) * stride + p);
                    const __m128 lo = _mm_unpacklo_ps(r0, r1);
                    const __m128 hi = _mm_unpackhi_ps(r0, r1);
                    _mm_storel_pi((__m64 *)(dst + 0 * kMR + i), lo);
                    _mm_storeh_pi((__m64 *)(dst + 1 * kMR + i), lo);
                    _mm_storel_pi((__m64 *)(dst + 2 * kMR + i), hi);
                    _mm_storeh_pi((__m64 *)(dst + 3 * kMR + i), hi);
                }
            }
        }
        for (; p < depth; ++p) {
            float *dst = to + p * kMR;
            int64_t i = 0;
            for (; i < have; ++i) dst[i] = src[i * stride + p];
            for (; i < kMR; ++i) dst[i] = 0.0f;
        }
        for (; p < padded; ++p) {
            for (int64_t i = 0; i < kMR; ++i) to[p * kMR + i] = 0.0f;
        }
        to += kMR * padded;
    }
}

// Block of B, depth x columns, as panels of NR columns, row by row.
// Each panel is NR * padded floats; zeros behind the last row and column.
// UNROLL rows at a time: the source is read along its rows, the pages of the
// original are touched once, and each panel gets whole cache lines.
void pack_b(float *__restrict to, const float *__restrict from, int64_t stride,
            int64_t columns, int64_t depth, int64_t padded) {
    const int64_t whole = columns / kNR * kNR;
    for (int64_t p0 = 0; p0 < padded; p0 += kUnroll) {
        const int64_t have = smaller(kUnroll, depth - p0);
        float *dst = to + p0 * kNR;
        for (int64_t j0 = 0; j0 < whole; j0 += kNR) {
            const float *src = from + p0 * stride + j0;
            int64_t p = 0;
            for (; p < have; ++p) std::memcpy(dst + p * kNR, src + p * stride, kNR * sizeof(float));
            for (; p < kUnroll; ++p) std::memset(dst + p * kNR, 0, kNR * sizeof(float));
            dst += kNR * padded;
        }
        if (whole < columns) {
            const float *src = from + p0 * stride + whole;
            const int64_t rest = columns - whole;
            for (int64_t p = 0; p < kUnroll; ++p) {
                int64_t j = 0;
                if (p < have) {
                    for (; j < rest; ++j) dst[p * kNR + j] = src[p * stride + j];
                }
                for (; j < kNR; ++j) dst[p * kNR + j] = 0.0f;
            }
        }
    }
}

// A tile that hangs over the edge of C: computed whole in local memory, then
// the part that is there is stored (first block of depth) or added.
void edge_tile(float *c, const float *a, const float *b, int64_t padded, int64_t n,
               int64_t rows, int64_t columns, bool first) {
    alignas(64) float tile[kMR * kNR];
    std::memset(tile, 0, sizeof(tile));
    COMPUTE(tile, a, b, padded, kNR * (int64_t)sizeof(float));
    for (int64_t i = 0; i < rows; ++i) {
        float *row = c + i * n;
        const float *got = tile + i * kNR;
        if (first) {
            for (int64_t j = 0; j < columns; ++j) row[j] = got[j];
        } else {
            for (int64_t j = 0; j < columns; ++j) row[j] += got[j];
        }
    }
}

// Only where no memory is to be had.
void plain(float *c, const float *a, const float *b, int64_t m, int64_t n, int64_t k) {
    for (int64_t i = 0; i < m; ++i) {
        float *row = c + i * n;
        for (int64_t j = 0; j < n; ++j) row[j] = 0.0f;
        for (int64_t p = 0; p < k; ++p) {
            const float factor = a[i * k + p];
            const float *from = b + p * n;
            for (int64_t j = 0; j < n; ++j) row[j] += factor * from[j];
        }
    }
}

}  // namespace

extern "C" void gemm(float *c, const float *a, const float *b, int64_t m, int64_t n, int64_t k) {
    if (m <= 0 || n <= 0) return;
    if (k <= 0) {
        std::memset(c, 0, (size_t)(m * n) * sizeof(float));
        return;
    }

    // Space for one packed block of A and one of B, no more than is needed.
    const int64_t most_depth = smaller(kBK, (k + kUnroll - 1) / kUnroll * kUnroll);
    const int64_t most_rows = smaller(kBM, (m + kMR - 1) / kMR * kMR);
    const int64_t most_columns = smaller(kBN, (n + kNR - 1) / kNR * kNR);
    const size_t bytes_a = ((size_t)(most_rows * most_depth) * sizeof(float) + 63) / 64 * 64;
    const size_t bytes_b = ((size_t)(most_columns * most_depth) * sizeof(float) + 63) / 64 * 64;
    char *space = (char *)std::aligned_alloc(64, bytes_a + bytes_b);
    if (!space) {
        plain(c, a, b, m, n, k);
        return;
    }
    float *packed_a = (float *)space;
    float *packed_b = (float *)(space + bytes_a);
    const int64_t row_bytes = n * (int64_t)sizeof(float);

    for (int64_t j0 = 0; j0 < n; j0 += kBN) {                // columns of B: third-level cache
        const int64_t columns = smaller(kBN, n - j0);
        for (int64_t p0 = 0; p0 < k; p0 += kBK) {            // depth
            const int64_t depth = smaller(kBK, k - p0);
            const int64_t padded = (depth + kUnroll - 1) / kUnroll * kUnroll;
            const bool first = p0 == 0;
            pack_b(packed_b, b + p0 * n + j0, n, columns, depth, padded);

            for (int64_t i0 = 0; i0 < m; i0 += kBM) {        // rows of A: second-level cache
                const int64_t rows = smaller(kBM, m - i0);
                pack_a(packed_a, a + i0 * k + p0, k, rows, depth, padded);

                for (int64_t j = 0; j < columns; j += kNR) { // a strip of B: first-level cache
                    const float *strip = packed_b + j * padded;
                    const int64_t width = smaller(kNR, columns - j);

                    for (int64_t i = 0; i < rows; i += kMR) { // a tile of registers
                        const float *panel = packed_a + i * padded;
                        const int64_t height = smaller(kMR, rows - i);
                        float *tile = c + (i0 + i) * n + j0 + j;

                        if (width == kNR && height == kMR) {
                            if (first) {
                                // c holds garbage: clear the tile just before it is used.
                                for (int64_t r = 0; r < kMR; ++r)
                                    std::memset(tile + r * n, 0, kNR * sizeof(float));
                            } else {
                                // The tile is needed only when COMPUTE ends: let it come meanwhile.
                                for (int64_t r = 0; r < kMR; ++r) {
                                    __builtin_prefetch(tile + r * n, 1);
                                    __builtin_prefetch(tile + r * n + kNR - 1, 1);
                                }
                            }
                            COMPUTE(tile, panel, strip, padded, row_bytes);
                        } else {
                            edge_tile(tile, panel, strip, padded, n, height, width, first);
                        }
                    }
                }
            }
        }
    }
    std::free(space);
}
