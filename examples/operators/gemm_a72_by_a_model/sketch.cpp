#include <cstdint>
#include <cstdlib>
#include <cstring>

// One tile of registers: MR x NR elements of c.
//
//   c            the tile's first element; row r begins at (char *)c + r * row_bytes; rows are NR floats
//                (no alignment beyond that of a float)
//   a            a packed panel of A: MR rows by depth columns, in groups of 4 columns.
//                The group q (columns 4q .. 4q+3) takes MR * 4 floats, in which each row has its four
//                columns side by side: element (r, p) is a[(p / 4) * (MR * 4) + r * 4 + p % 4].
//                So one 128-bit vector holds four successive columns of ONE row, and lane p % 4 of it
//                is the factor of row p of B. Nothing need be transposed.
//   b            a packed strip of B: depth rows by NR columns, row by row:
//                element (p, j) is b[p * NR + j]
//   depth        number of columns of a and rows of b; at least KU and always a multiple of KU
//   row_bytes    distance of two rows of c, in bytes
//   accumulate   0: the tile of c is overwritten by the product (it holds garbage before and must not
//                be read); otherwise the product is added to what the tile holds
//
// a and b are aligned to 64 bytes and are read exactly from beginning to end, never beyond.
extern "C" void COMPUTE(float *c, const float *a, const float *b, int64_t depth, int64_t row_bytes,
                        int64_t accumulate);

namespace {

constexpr int64_t MR = {{MR}};  // rows of a tile of registers
constexpr int64_t NR = {{NR}};  // columns of a tile of registers
constexpr int64_t KU = {{KU}};  // depth by which COMPUTE is unrolled; packed depth is a multiple of it
constexpr int64_t BM = {{BM}};  // rows of the packed block of A
constexpr int64_t BN = {{BN}};  // columns of the packed block of B
constexpr int64_t BK = {{BK}};  // depth of both blocks
constexpr int64_t LANES = 4;    // floats in a vector of 128 bits

static_assert(KU % LANES == 0 && BK % KU == 0 && BM % MR == 0 && BN % NR == 0, "sizes do not fit");

typedef float Vector __attribute__((vector_size(16)));

inline Vector load(const float *from) {
    Vector v;
    std::memcpy(&v, from, sizeof v);
    return v;
}

inline void store(float *to, Vector v) { std::memcpy(to, &v, sizeof v); }

inline int64_t smaller(int64_t x, int64_t y) { return x < y ? x : y; }

inline int64_t round_up(int64_t x, int64_t to) { return (x + to - 1) / to * to; }

// Panels of MR rows, in groups of LANES columns (see COMPUTE); zeros behind the last row and column.
void pack_a(float *__restrict to, const float *__restrict a, int64_t stride, int64_t rows, int64_t depth,
            int64_t padded) {
    constexpr int64_t GROUP = MR * LANES;
    for (int64_t i = 0; i < rows; i += MR, to += MR * padded) {
        const int64_t here = smaller(MR, rows - i);
        for (int64_t r = 0; r < here; ++r) {
            const float *__restrict from = a + (i + r) * stride;
            float *__restrict out = to + r * LANES;
            int64_t p = 0;
            for (; p + 4 * LANES <= depth; p += 4 * LANES, out += 4 * GROUP) {
                const Vector v0 = load(from + p);
                const Vector v1 = load(from + p + LANES);
                const Vector v2 = load(from + p + 2 * LANES);
                const Vector v3 = load(from + p + 3 * LANES);
                store(out, v0);
                store(out + GROUP, v1);
                store(out + 2 * GROUP, v2);
                store(out + 3 * GROUP, v3);
            }
            for (; p < padded; p += LANES, out += GROUP)
                for (int64_t l = 0; l < LANES; ++l) out[l] = p + l < depth ? from[p + l] : 0.0f;
        }
        for (int64_t r = here; r < MR; ++r) {
            float *out = to + r * LANES;
            for (int64_t p = 0; p < padded; p += LANES, out += GROUP)
                for (int64_t l = 0; l < LANES; ++l) out[l] = 0.0f;
        }
    }
}

// Strips of NR columns, row by row; zeros behind the last column and row.
void pack_b(float *__restrict to, const float *__restrict b, int64_t stride, int64_t depth, int64_t columns,
            int64_t padded) {
    for (int64_t j = 0; j < columns; j += NR, to += NR * padded) {
        const int64_t here = smaller(NR, columns - j);
        const float *__restrict from = b + j;
        float *__restrict out = to;
        if (here == NR) {
            int64_t p = 0;
            for (; p + 2 <= depth; p += 2, from += 2 * stride, out += 2 * NR) {
                std::memcpy(out, from, NR * sizeof(float));
                std::memcpy(out + NR, from + stride, NR * sizeof(float));
            }
            if (p < depth) {
                std::memcpy(out, from, NR * sizeof(float));
                out += NR;
            }
        } else {
            for (int64_t p = 0; p < depth; ++p, from += stride, out += NR)
                for (int64_t l = 0; l < NR; ++l) out[l] = l < here ? from[l] : 0.0f;
        }
        if (depth < padded) std::memset(out, 0, (padded - depth) * NR * sizeof(float));
    }
}

// Where no memory is to be had.
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
        std::memset(c, 0, static_cast<size_t>(m) * static_cast<size_t>(n) * sizeof(float));
        return;
    }

    // No larger than the matrices need; A first, then B, both at multiples of 64 bytes.
    const int64_t most_rows = smaller(BM, round_up(m, MR));
    const int64_t most_columns = smaller(BN, round_up(n, NR));
    const int64_t most_depth = smaller(BK, round_up(k, KU));
    const int64_t a_floats = round_up(most_rows * most_depth, 16);
    const int64_t b_floats = round_up(most_columns * most_depth, 16);
    float *const packed_a =
        static_cast<float *>(std::aligned_alloc(64, static_cast<size_t>(a_floats + b_floats) * sizeof(float)));
    if (packed_a == nullptr) {
        plain(c, a, b, m, n, k);
        return;
    }
    float *const packed_b = packed_a + a_floats;

    for (int64_t j0 = 0; j0 < n; j0 += BN) {
        const int64_t columns = smaller(BN, n - j0);
        for (int64_t p0 = 0; p0 < k; p0 += BK) {
            const int64_t depth = smaller(BK, k - p0);
            const int64_t padded = round_up(depth, KU);
            const int64_t accumulate = p0 == 0 ? 0 : 1;
            pack_b(packed_b, b + p0 * n + j0, n, depth, columns, padded);
            for (int64_t i0 = 0; i0 < m; i0 += BM) {
                const int64_t rows = smaller(BM, m - i0);
                pack_a(packed_a, a + i0 * k + p0, k, rows, depth, padded);
                for (int64_t j = 0; j < columns; j += NR) {
                    const float *const strip = packed_b + j * padded;
                    const int64_t wide = smaller(NR, columns - j);
                    for (int64_t i = 0; i < rows; i += MR) {
                        const float *const panel = packed_a + i * padded;
                        const int64_t high = smaller(MR, rows - i);
                        float *const corner = c + (i0 + i) * n + j0 + j;
                        if (high == MR && wide == NR) {
                            COMPUTE(corner, panel, strip, padded, n * static_cast<int64_t>(sizeof(float)),
                                    accumulate);
                        } else {
                            alignas(64) float tile[MR * NR];
                            COMPUTE(tile, panel, strip, padded, NR * static_cast<int64_t>(sizeof(float)), 0);
                            for (int64_t r = 0; r < high; ++r)
                                for (int64_t l = 0; l < wide; ++l) {
                                    const float value = tile[r * NR + l];
                                    float *const at = corner + r * n + l;
                                    *at = accumulate ? *at + value : value;
                                }
                        }
                    }
                }
            }
        }
    }

    std::free(packed_a);
}
