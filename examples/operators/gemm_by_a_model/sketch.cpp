#include <cstdint>
#include <cstring>

// COMPUTE: one tile of registers, {{MR}} rows by {{NR}} columns, in assembly.
//   c          the tile's first element; rows are row_bytes apart (no alignment beyond 4 bytes is promised)
//   a          packed panel of A: {{MR}} rows, each row contiguous along the depth, and the rows
//              exactly {{BK}} floats apart (a constant): element (r, p) is a[r * {{BK}} + p].
//              Aligned to 64 bytes. The next panel follows {{MR}} * {{BK}} floats later.
//   b          packed panel of B: element (p, j) is b[p * {{NR}} + j]. Aligned to 64 bytes.
//   depth      a positive multiple of {{KU}} (unroll by it; there is no rest), at most {{BK}}
//   row_bytes  distance of the rows of c in bytes
//   accumulate 0: c = a * b (c holds garbage, it is never read); otherwise: c += a * b
extern "C" void COMPUTE(float *c, const float *a, const float *b, int64_t depth, int64_t row_bytes,
                        int64_t accumulate);

namespace {

constexpr int64_t MR = {{MR}};
constexpr int64_t NR = {{NR}};
constexpr int64_t KU = {{KU}};
constexpr int64_t BK = {{BK}};
// Blocks are rounded up to whole tiles.
constexpr int64_t BM = ({{BM}} + MR - 1) / MR * MR;
constexpr int64_t BN = ({{BN}} + NR - 1) / NR * NR;

static_assert(BK % KU == 0, "BK must be a multiple of KU");
static_assert(BK % 16 == 0, "rows of packed A are whole cache lines");
static_assert(NR % 16 == 0, "NR must be whole vectors");

typedef float vec_u __attribute__((vector_size(64), aligned(4), may_alias));
typedef float vec_a __attribute__((vector_size(64), aligned(64), may_alias));

// Static, so that no call pays for fresh pages (slack behind them for prefetching).
alignas(4096) float packed_a[BM * BK + 1024];
alignas(4096) float packed_b[BN * BK + 1024];

inline int64_t smaller(int64_t x, int64_t y) { return x < y ? x : y; }

// Panels of MR rows; within a panel row after row, BK floats apart; zeros behind the last row
// and from depth to padded.
void pack_a(const float *a, int64_t lda, int64_t rows, int64_t depth, int64_t padded) {
    const int64_t whole = (rows + MR - 1) / MR * MR;
    float *to = packed_a;
    for (int64_t i = 0; i < rows; ++i, to += BK) {
        std::memcpy(to, a + i * lda, (size_t)depth * sizeof(float));
        for (int64_t p = depth; p < padded; ++p) to[p] = 0.0f;
    }
    for (int64_t i = rows; i < whole; ++i, to += BK)
        std::memset(to, 0, (size_t)padded * sizeof(float));
}

// Panels of NR columns; within a panel row after row, NR floats each; panels padded * NR floats apart;
// zeros behind the last column and from depth to padded. Rows of b are read in order.
void pack_b(const float *b, int64_t ldb, int64_t cols, int64_t depth, int64_t padded) {
    const int64_t full = cols / NR;
    const int64_t rest = cols - full * NR;
    const int64_t step = padded * NR;
    for (int64_t p = 0; p < depth; ++p) {
        const float *from = b + p * ldb;
        float *to = packed_b + p * NR;
        for (int64_t s = 0; s < full; ++s, from += NR, to += step)
            for (int64_t j = 0; j < NR; j += 16) {
                const vec_u v = *(const vec_u *)(from + j);
                *(vec_a *)(to + j) = (vec_a)v;
            }
        if (rest) {
            for (int64_t j = 0; j < rest; ++j) to[j] = from[j];
            for (int64_t j = rest; j < NR; ++j) to[j] = 0.0f;
        }
    }
    if (padded > depth) {
        const int64_t panels = full + (rest ? 1 : 0);
        for (int64_t s = 0; s < panels; ++s)
            std::memset(packed_b + s * step + depth * NR, 0,
                        (size_t)((padded - depth) * NR) * sizeof(float));
    }
}

}  // namespace

extern "C" void gemm(float *c, const float *a, const float *b, int64_t m, int64_t n, int64_t k) {
    if (m <= 0 || n <= 0) return;
    if (k <= 0) {
        std::memset(c, 0, (size_t)(m * n) * sizeof(float));
        return;
    }
    const int64_t row_bytes = n * (int64_t)sizeof(float);

    for (int64_t jc = 0; jc < n; jc += BN) {
        const int64_t nb = smaller(BN, n - jc);
        for (int64_t pc = 0; pc < k; pc += BK) {
            const int64_t kb = smaller(BK, k - pc);
            const int64_t padded = (kb + KU - 1) / KU * KU;
            const int64_t accumulate = pc > 0 ? 1 : 0;
            pack_b(b + pc * n + jc, n, nb, kb, padded);
            for (int64_t ic = 0; ic < m; ic += BM) {
                const int64_t mb = smaller(BM, m - ic);
                pack_a(a + ic * k + pc, k, mb, kb, padded);
                for (int64_t jr = 0; jr < nb; jr += NR) {
                    const int64_t nr = smaller(NR, nb - jr);
                    const float *pb = packed_b + jr * padded;
                    float *cc = c + ic * n + jc + jr;
                    for (int64_t ir = 0; ir < mb; ir += MR) {
                        const int64_t mr = smaller(MR, mb - ir);
                        const float *pa = packed_a + ir * BK;
                        float *ct = cc + ir * n;
                        if (mr == MR && nr == NR) {
                            COMPUTE(ct, pa, pb, padded, row_bytes, accumulate);
                        } else {
                            alignas(64) float tile[MR * NR];
                            COMPUTE(tile, pa, pb, padded, NR * (int64_t)sizeof(float), 0);
                            if (accumulate) {
                                for (int64_t i = 0; i < mr; ++i)
                                    for (int64_t j = 0; j < nr; ++j) ct[i * n + j] += tile[i * NR + j];
                            } else {
                                for (int64_t i = 0; i < mr; ++i)
                                    for (int64_t j = 0; j < nr; ++j) ct[i * n + j] = tile[i * NR + j];
                            }
                        }
                    }
                }
            }
        }
    }
}
