#include <cstdint>
#include <cstdlib>
#include <cstring>

// COMPUTE: one tile of registers, {{MR}} rows by {{NR}} columns.
//   c          first element of the tile; rows are row_bytes bytes apart; only 4-byte alignment is
//              certain; exactly {{MR}} x {{NR}} elements are written, nothing beside them
//   a          packed panel of A, 64-byte aligned. It is NOT stored column by column but in groups of
//              four steps of depth: a[(p / 4) * (4 * {{MR}}) + r * 4 + (p % 4)] is A(row r, depth p).
//              So a group is {{MR}} vectors, vector r holding row r at four consecutive depths, and
//              the step p uses lane p % 4 of each:  fmla acc[r][j].4s, b[j].4s, a[r].s[p % 4]
//   b          packed panel of B, 64-byte aligned: b[p * {{NR}} + j] is B(depth p, column j)
//   depth      number of steps, positive and always a multiple of {{KU}} (filled up with zeros), so
//              that a loop unrolled {{KU}} times needs no remainder
//   row_bytes  distance between rows of c in bytes
//   accumulate 0: c = a * b (c is not read, it may hold garbage);  1: c = c + a * b
// Both panels are read from beginning to end, never beyond; 64 bytes a load are possible, such as
//   ld1 {v0.4s, v1.4s, v2.4s, v3.4s}, [x1], #64
extern "C" void COMPUTE(float *c, const float *a, const float *b, int64_t depth, int64_t row_bytes,
                        int64_t accumulate);

namespace {

constexpr int64_t kBM = {{BM}};
constexpr int64_t kBN = {{BN}};
constexpr int64_t kBK = {{BK}};
constexpr int64_t kMR = {{MR}};
constexpr int64_t kNR = {{NR}};
constexpr int64_t kKU = {{KU}};
constexpr int64_t kLanes = 4;  // floats in a vector register

static_assert(kBM % kMR == 0, "BM must be a multiple of MR");
static_assert(kBN % kNR == 0, "BN must be a multiple of NR");
static_assert(kBK % kKU == 0, "BK must be a multiple of KU");
static_assert(kKU % kLanes == 0, "KU must be a multiple of the lanes");

inline int64_t smaller(int64_t x, int64_t y) { return x < y ? x : y; }
inline int64_t round_up(int64_t x, int64_t to) { return (x + to - 1) / to * to; }

// rows x kb of A -> panels of MR rows, groups of four depths; zeros behind the last row and depth.
void pack_a(float *__restrict to, const float *__restrict a, int64_t lda, int64_t rows, int64_t kb,
            int64_t depth) {
    for (int64_t i = 0; i < rows; i += kMR, to += kMR * depth) {
        const int64_t mr = smaller(kMR, rows - i);
        if (mr < kMR || kb < depth) std::memset(to, 0, sizeof(float) * kMR * depth);
        for (int64_t r = 0; r < mr; ++r) {
            const float *__restrict from = a + (i + r) * lda;
            float *__restrict dst = to + r * kLanes;
            int64_t p = 0;
            for (; p + kKU <= kb; p += kKU) {
#pragma GCC unroll 16
                for (int64_t g = 0; g < kKU / kLanes; ++g)
                    std::memcpy(dst + g * (kLanes * kMR), from + g * kLanes, sizeof(float) * kLanes);
                dst += kKU * kMR;
                from += kKU;
            }
            for (int64_t q = 0; p + q < kb; ++q)
                dst[(q / kLanes) * (kLanes * kMR) + q % kLanes] = from[q];
        }
    }
}

// kb x cols of B -> panels of NR columns, row by row; zeros behind the last column and depth.
void pack_b(float *__restrict to, const float *__restrict b, int64_t ldb, int64_t cols, int64_t kb,
            int64_t depth) {
    for (int64_t j = 0; j < cols; j += kNR, to += kNR * depth) {
        const int64_t nr = smaller(kNR, cols - j);
        const float *__restrict from = b + j;
        float *__restrict dst = to;
        if (nr == kNR) {
            int64_t p = 0;
            for (; p + kKU <= kb; p += kKU) {
#pragma GCC unroll 16
                for (int64_t q = 0; q < kKU; ++q) {
                    std::memcpy(dst + q * kNR, from, sizeof(float) * kNR);
                    from += ldb;
                }
                dst += kKU * kNR;
            }
            for (; p < kb; ++p, from += ldb, dst += kNR) std::memcpy(dst, from, sizeof(float) * kNR);
        } else {
            for (int64_t p = 0; p < kb; ++p, from += ldb, dst += kNR) {
                for (int64_t x = 0; x < nr; ++x) dst[x] = from[x];
                for (int64_t x = nr; x < kNR; ++x) dst[x] = 0.0f;
            }
        }
        if (kb < depth) std::memset(dst, 0, sizeof(float) * kNR * (depth - kb));
    }
}

// A tile that reaches over the edge of c: computed whole in local memory, what is there is kept.
void edge_tile(float *c, const float *a, const float *b, int64_t depth, int64_t ldc, int64_t mr,
               int64_t nr, int64_t accumulate) {
    alignas(64) float tile[kMR * kNR];
    COMPUTE(tile, a, b, depth, static_cast<int64_t>(sizeof(float)) * kNR, 0);
    for (int64_t r = 0; r < mr; ++r) {
        for (int64_t x = 0; x < nr; ++x) {
            const float value = tile[r * kNR + x];
            c[r * ldc + x] = accumulate ? c[r * ldc + x] + value : value;
        }
    }
}

}  // namespace

extern "C" void gemm(float* c, const float* a, const float* b, int64_t m, int64_t n, int64_t k) {
    if (m <= 0 || n <= 0) return;
    if (k <= 0) {
        std::memset(c, 0, sizeof(float) * static_cast<size_t>(m) * static_cast<size_t>(n));
        return;
    }

    const int64_t most_depth = smaller(kBK, round_up(k, kKU));
    const int64_t most_rows = smaller(kBM, round_up(m, kMR));
    const int64_t most_cols = smaller(kBN, round_up(n, kNR));
    const int64_t a_bytes = round_up(static_cast<int64_t>(sizeof(float)) * most_rows * most_depth, 64);
    const int64_t b_bytes = round_up(static_cast<int64_t>(sizeof(float)) * most_cols * most_depth, 64);
    char *memory = static_cast<char *>(std::aligned_alloc(64, static_cast<size_t>(a_bytes + b_bytes)));
    if (!memory) std::abort();
    float *packed_a = reinterpret_cast<float *>(memory);
    float *packed_b = reinterpret_cast<float *>(memory + a_bytes);
    const int64_t row_bytes = static_cast<int64_t>(sizeof(float)) * n;

    for (int64_t jc = 0; jc < n; jc += kBN) {
        const int64_t nb = smaller(kBN, n - jc);
        for (int64_t pc = 0; pc < k; pc += kBK) {
            const int64_t kb = smaller(kBK, k - pc);
            const int64_t depth = round_up(kb, kKU);
            const int64_t accumulate = pc > 0 ? 1 : 0;
            pack_b(packed_b, b + pc * n + jc, n, nb, kb, depth);
            for (int64_t ic = 0; ic < m; ic += kBM) {
                const int64_t mb = smaller(kBM, m - ic);
                pack_a(packed_a, a + ic * k + pc, k, mb, kb, depth);
                const float *pb = packed_b;
                for (int64_t jr = 0; jr < nb; jr += kNR, pb += kNR * depth) {
                    const int64_t nr = smaller(kNR, nb - jr);
                    const float *pa = packed_a;
                    float *to = c + ic * n + jc + jr;
                    int64_t left = mb;
                    if (nr == kNR) {
                        for (; left >= kMR; left -= kMR) {
                            COMPUTE(to, pa, pb, depth, row_bytes, accumulate);
                            to += kMR * n;
                            pa += kMR * depth;
                        }
                    }
                    for (; left > 0; left -= kMR) {
                        edge_tile(to, pa, pb, depth, n, smaller(kMR, left), nr, accumulate);
                        if (left > kMR) {
                            to += kMR * n;
                            pa += kMR * depth;
                        }
                    }
                }
            }
        }
    }
    std::free(memory);
}
