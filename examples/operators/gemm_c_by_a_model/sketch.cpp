#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>

// Blocked matrix product: panels of b (KC x NR) stay in L1, a block of a
// (MC x KC) in L2, a tile of c (MR x NR) in registers.

namespace gemm_detail {

constexpr int64_t MR = {{MR}};                              // rows of a register tile
constexpr int64_t NR = {{NR}};                              // columns of a register tile
constexpr int64_t MC = ({{MC}} + MR - 1) / MR * MR;         // rows of a block of a
constexpr int64_t NC = ({{NC}} + NR - 1) / NR * NR;         // columns of a block of b
constexpr int64_t KC = {{KC}};                              // depth of both blocks
constexpr int64_t PB = {{PB}};                              // rows of b packed at a time
constexpr bool PACK_A = ({{PACKA}}) != 0;                   // copy a into panels, or read it in place
constexpr bool COLUMNS_OUTSIDE = ({{FORM}}) == 0;           // order of the loops in a register tile

constexpr std::size_t ALIGN = 64;

// One whole tile: c[MR][NR] (+)= a[MR][kc] * b[kc][NR], kc >= 1.
// Not static on purpose: it is to stay a function of its own.
void micro(int64_t kc, const float* a, int64_t lda, const float* b,
           float* c, int64_t ldc, bool add) {
    alignas(ALIGN) float acc[MR][NR];
    const int64_t rs = PACK_A ? 1 : lda;    // from a row to the next
    const int64_t ks = PACK_A ? MR : 1;     // from a column to the next

    if constexpr (COLUMNS_OUTSIDE) {
        for (int64_t j = 0; j < NR; ++j) {
            const float bj = b[j];
            for (int64_t i = 0; i < MR; ++i) acc[i][j] = a[i * rs] * bj;
        }
#pragma GCC unroll {{KU}}
        for (int64_t p = 1; p < kc; ++p) {
            a += ks;
            b += NR;
            for (int64_t j = 0; j < NR; ++j) {
                const float bj = b[j];
                for (int64_t i = 0; i < MR; ++i) acc[i][j] += a[i * rs] * bj;
            }
        }
    } else {
        for (int64_t i = 0; i < MR; ++i) {
            const float ai = a[i * rs];
            for (int64_t j = 0; j < NR; ++j) acc[i][j] = ai * b[j];
        }
#pragma GCC unroll {{KU}}
        for (int64_t p = 1; p < kc; ++p) {
            a += ks;
            b += NR;
            for (int64_t i = 0; i < MR; ++i) {
                const float ai = a[i * rs];
                for (int64_t j = 0; j < NR; ++j) acc[i][j] += ai * b[j];
            }
        }
    }

    if (add) {
        for (int64_t i = 0; i < MR; ++i) {
            float* ci = c + i * ldc;
            for (int64_t j = 0; j < NR; ++j) ci[j] += acc[i][j];
        }
    } else {
        for (int64_t i = 0; i < MR; ++i)
            std::memcpy(c + i * ldc, acc[i], sizeof(float) * NR);
    }
}

}  // namespace gemm_detail

namespace {

using namespace gemm_detail;

inline int64_t smaller(int64_t x, int64_t y) { return x < y ? x : y; }

// Near-equal blocks of at most `most` (a multiple of `unit`), each a multiple of `unit`.
inline int64_t balanced(int64_t total, int64_t most, int64_t unit) {
    const int64_t parts = (total + most - 1) / most;
    const int64_t each = (total + parts - 1) / parts;
    return (each + unit - 1) / unit * unit;
}

// b[kc][nc] -> panels of NR columns, the last one padded with zeros.
void pack_b(const float* b, int64_t ldb, int64_t kc, int64_t nc, float* out) {
    for (int64_t p0 = 0; p0 < kc; p0 += PB) {
        const int64_t rows = smaller(PB, kc - p0);
        for (int64_t j = 0; j < nc; j += NR) {
            const float* src = b + p0 * ldb + j;
            float* dst = out + j * kc + p0 * NR;
            const int64_t cols = smaller(NR, nc - j);
            if (cols == NR) {
                for (int64_t p = 0; p < rows; ++p) {
                    std::memcpy(dst, src, sizeof(float) * NR);
                    src += ldb;
                    dst += NR;
                }
            } else {
                for (int64_t p = 0; p < rows; ++p) {
                    for (int64_t x = 0; x < cols; ++x) dst[x] = src[x];
                    for (int64_t x = cols; x < NR; ++x) dst[x] = 0.0f;
                    src += ldb;
                    dst += NR;
                }
            }
        }
    }
}

// a[mc][kc] -> panels of MR rows, column by column, the last one padded with zeros.
void pack_a(const float* a, int64_t lda, int64_t mc, int64_t kc, float* out) {
    for (int64_t i0 = 0; i0 < mc; i0 += MR) {
        const float* src = a + i0 * lda;
        float* dst = out + i0 * kc;
        const int64_t rows = smaller(MR, mc - i0);
        if (rows == MR) {
            for (int64_t p = 0; p < kc; ++p) {
                for (int64_t i = 0; i < MR; ++i) dst[i] = src[i * lda + p];
                dst += MR;
            }
        } else {
            for (int64_t p = 0; p < kc; ++p) {
                for (int64_t i = 0; i < rows; ++i) dst[i] = src[i * lda + p];
                for (int64_t i = rows; i < MR; ++i) dst[i] = 0.0f;
                dst += MR;
            }
        }
    }
}

// For the few shapes that have no tile, and where there is no memory.
void simple(float* c, const float* a, const float* b, int64_t m, int64_t n, int64_t k) {
    for (int64_t i = 0; i < m; ++i) {
        float* ci = c + i * n;
        for (int64_t j = 0; j < n; ++j) ci[j] = 0.0f;
        for (int64_t p = 0; p < k; ++p) {
            const float ai = a[i * k + p];
            const float* bp = b + p * n;
            for (int64_t j = 0; j < n; ++j) ci[j] += ai * bp[j];
        }
    }
}

}  // namespace

extern "C" void gemm(float* c, const float* a, const float* b, int64_t m, int64_t n, int64_t k) {
    if (m <= 0 || n <= 0) return;
    if (k <= 0 || (!PACK_A && m < MR)) {
        simple(c, a, b, m, n, k);
        return;
    }

    const int64_t mb = balanced(m, MC, MR);
    const int64_t nb = balanced(n, NC, NR);
    const int64_t kb = balanced(k, KC, 1);

    const int64_t line = static_cast<int64_t>(ALIGN / sizeof(float));
    const int64_t b_floats = (nb * kb + line - 1) / line * line;
    const int64_t a_floats = PACK_A ? mb * kb : 0;
    const std::size_t bytes = sizeof(float) * static_cast<std::size_t>(b_floats + a_floats);
    void* memory = ::operator new(bytes, std::align_val_t(ALIGN), std::nothrow);
    if (memory == nullptr) {
        simple(c, a, b, m, n, k);
        return;
    }
    float* const bpack = static_cast<float*>(memory);
    float* const apack = bpack + b_floats;

    alignas(ALIGN) float tile[MR * NR];

    for (int64_t jc = 0; jc < n; jc += nb) {
        const int64_t nc = smaller(nb, n - jc);
        for (int64_t pc = 0; pc < k; pc += kb) {
            const int64_t kc = smaller(kb, k - pc);
            const bool add = pc > 0;
            pack_b(b + pc * n + jc, n, kc, nc, bpack);
            for (int64_t ic = 0; ic < m; ic += mb) {
                const int64_t mc = smaller(mb, m - ic);
                if constexpr (PACK_A) pack_a(a + ic * k + pc, k, mc, kc, apack);
                for (int64_t jr = 0; jr < nc; jr += NR) {
                    const int64_t cols = smaller(NR, nc - jr);
                    const float* bp = bpack + jr * kc;
                    for (int64_t ir = 0; ir < mc; ir += MR) {
                        const int64_t rows = smaller(MR, mc - ir);
                        // Rows read in place must exist: a last, partial tile is
                        // moved up, and only its lowest rows are taken.
                        const int64_t shift = PACK_A ? 0 : MR - rows;
                        const float* ap = PACK_A ? apack + ir * kc
                                                 : a + (ic + ir - shift) * k + pc;
                        float* ct = c + (ic + ir) * n + jc + jr;
                        if (rows == MR && cols == NR) {
                            micro(kc, ap, k, bp, ct, n, add);
                        } else {
                            micro(kc, ap, k, bp, tile, NR, false);
                            for (int64_t i = 0; i < rows; ++i) {
                                const float* t = tile + (i + shift) * NR;
                                float* ci = ct + i * n;
                                if (add) {
                                    for (int64_t j = 0; j < cols; ++j) ci[j] += t[j];
                                } else {
                                    for (int64_t j = 0; j < cols; ++j) ci[j] = t[j];
                                }
                            }
                        }
                    }
                }
            }
        }
    }

    ::operator delete(memory, std::align_val_t(ALIGN));
}
