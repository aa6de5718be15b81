#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <xmmintrin.h>

// One tile of registers, MR x NR = {{MR}} x {{NR}}:
//   tile[r][j] = sum over p < depth of a[p * MR + r] * b[p * NR + j]
// a: one panel of packed A (depth x MR, each step MR floats, aligned to 4 bytes only),
// b: one panel of packed B (depth x NR, each step NR floats, aligned to 64 bytes),
// depth: at least 1, any number,
// row_bytes: bytes from a row of c to the next (c itself is aligned to 4 bytes only),
// accumulate: 0: c = tile, c is not read (it may hold garbage); else c += tile.
// The whole tile of MR rows and NR columns of c is written. Nothing is read behind the panels
// but for prefetches.
extern "C" void COMPUTE(float *c, const float *a, const float *b, int64_t depth, int64_t row_bytes,
                        int64_t accumulate);

namespace {

constexpr int64_t MR = {{MR}};
constexpr int64_t NR = {{NR}};
constexpr int64_t BM = {{BM}};
constexpr int64_t BN = {{BN}};
constexpr int64_t BK = {{BK}};
constexpr int64_t BP = {{BP}};  // rows of B that are packed together

static_assert(MR >= 4, "PACK_A transposes four rows at a time");
static_assert(BM % MR == 0, "BM must be a multiple of MR");
static_assert(BN % NR == 0, "BN must be a multiple of NR");
static_assert(NR % 16 == 0, "NR must be a multiple of a vector");

// Blocks of nearly equal size, none larger than limit, each a multiple of unit.
inline int64_t balanced(int64_t size, int64_t limit, int64_t unit) {
    const int64_t blocks = (size + limit - 1) / limit;
    const int64_t part = (size + blocks - 1) / blocks;
    return (part + unit - 1) / unit * unit;
}

// rows x depth of A to panels of MR rows, column by column; zeros behind the last row.
void PACK_A(float *__restrict to, const float *__restrict a, int64_t stride, int64_t rows,
            int64_t depth) {
    for (int64_t i = 0; i < rows; i += MR, to += MR * depth) {
        const float *from = a + i * stride;
        const int64_t have = std::min(MR, rows - i);
        if (have == MR) {
            // Groups of four rows; the last group may overlap the one before it.
            for (int64_t g = 0; g < MR; g += 4) {
                const int64_t r = std::min(g, MR - 4);
                const float *r0 = from + r * stride;
                const float *r1 = r0 + stride;
                const float *r2 = r1 + stride;
                const float *r3 = r2 + stride;
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
        } else {
            for (int64_t r = 0; r < have; ++r)
                for (int64_t p = 0; p < depth; ++p) to[p * MR + r] = from[r * stride + p];
            for (int64_t r = have; r < MR; ++r)
                for (int64_t p = 0; p < depth; ++p) to[p * MR + r] = 0.0f;
        }
    }
}

// depth x columns of B to panels of NR columns, row by row; zeros behind the last column.
// A few rows at a time across all panels, so that few pages are open at once.
void PACK_B(float *__restrict to, const float *__restrict b, int64_t stride, int64_t depth,
            int64_t columns) {
    for (int64_t p0 = 0; p0 < depth; p0 += BP) {
        const int64_t p1 = std::min(depth, p0 + BP);
        for (int64_t j = 0; j < columns; j += NR) {
            float *panel = to + j * depth;
            const int64_t have = std::min(NR, columns - j);
            if (have == NR) {
                for (int64_t p = p0; p < p1; ++p)
                    std::memcpy(panel + p * NR, b + p * stride + j, NR * sizeof(float));
            } else {
                for (int64_t p = p0; p < p1; ++p) {
                    float *out = panel + p * NR;
                    const float *from = b + p * stride + j;
                    for (int64_t q = 0; q < have; ++q) out[q] = from[q];
                    for (int64_t q = have; q < NR; ++q) out[q] = 0.0f;
                }
            }
        }
    }
}

// A tile at an edge: computed whole in local memory, then the part that is there.
void edge_tile(float *c, int64_t stride, const float *a, const float *b, int64_t depth,
               int64_t rows, int64_t columns, bool accumulate) {
    alignas(64) float tile[MR * NR];
    COMPUTE(tile, a, b, depth, NR * static_cast<int64_t>(sizeof(float)), 0);
    for (int64_t r = 0; r < rows; ++r) {
        float *row = c + r * stride;
        const float *from = tile + r * NR;
        if (accumulate) {
            for (int64_t q = 0; q < columns; ++q) row[q] += from[q];
        } else {
            for (int64_t q = 0; q < columns; ++q) row[q] = from[q];
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
        for (int64_t i = 0; i < m * n; ++i) c[i] = 0.0f;
        return;
    }

    const int64_t block_m = balanced(m, BM, MR);
    const int64_t block_n = balanced(n, BN, NR);
    const int64_t block_k = balanced(k, BK, 8);

    // Both packed blocks in one piece of memory, each from the beginning of a page.
    const int64_t page = 4096;
    const int64_t bytes_b =
        (block_n * block_k * static_cast<int64_t>(sizeof(float)) + page - 1) / page * page;
    const int64_t bytes_a =
        (block_m * block_k * static_cast<int64_t>(sizeof(float)) + page - 1) / page * page;
    char *memory = static_cast<char *>(
        std::aligned_alloc(static_cast<std::size_t>(page),
                           static_cast<std::size_t>(bytes_b + bytes_a + page)));
    if (memory == nullptr) {
        plain(c, a, b, m, n, k);
        return;
    }
    float *packed_b = reinterpret_cast<float *>(memory);
    float *packed_a = reinterpret_cast<float *>(memory + bytes_b);
    const int64_t row_bytes = n * static_cast<int64_t>(sizeof(float));

    for (int64_t jc = 0; jc < n; jc += block_n) {
        const int64_t columns = std::min(block_n, n - jc);
        for (int64_t pc = 0; pc < k; pc += block_k) {
            const int64_t depth = std::min(block_k, k - pc);
            const bool accumulate = pc != 0;
            PACK_B(packed_b, b + pc * n + jc, n, depth, columns);
            for (int64_t ic = 0; ic < m; ic += block_m) {
                const int64_t rows = std::min(block_m, m - ic);
                PACK_A(packed_a, a + ic * k + pc, k, rows, depth);
                for (int64_t jr = 0; jr < columns; jr += NR) {
                    const float *strip = packed_b + jr * depth;
                    const int64_t wide = std::min(NR, columns - jr);
                    for (int64_t ir = 0; ir < rows; ir += MR) {
                        const float *panel = packed_a + ir * depth;
                        const int64_t high = std::min(MR, rows - ir);
                        float *tile = c + (ic + ir) * n + jc + jr;
                        if (high == MR && wide == NR) {
                            COMPUTE(tile, panel, strip, depth, row_bytes, accumulate ? 1 : 0);
                        } else {
                            edge_tile(tile, n, panel, strip, depth, high, wide, accumulate);
                        }
                    }
                }
            }
        }
    }

    std::free(memory);
}
