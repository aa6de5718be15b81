#include <cstdint>

// One tile of registers: MR = {{MR}} rows by `columns` columns of c, 1 <= columns <= NR = {{NR}}.
//   c[r][j] = (accumulate ? c[r][j] : 0) + sum over p < depth of a[r][p] * b[p][j]
// a, b and c are read and written in place, row by row; nothing is packed.
//   layout[0]: bytes from one row of a to the next    (a advances 4 bytes per step of depth)
//   layout[1]: bytes from one row of b to the next    (b advances by this per step of depth)
//   layout[2]: bytes from one row of c to the next
//   layout[3]: accumulate, 0 or 1
// depth may be any number >= 0, also 0 and also no multiple of UNROLL = {{UNROLL}}: the main loop does
// {{UNROLL}} steps of depth per turn, a loop of single steps does the rest.
// Vector extension: one register group of NR/8 registers holds a row of the tile (NR = 64: LMUL 8,
// NR = 32: LMUL 4), one more group the row of b; vsetvli with `columns` (e32) makes the narrow last
// strip right without any padding. Elements of a come by flw with immediate offsets from MR row
// pointers, then vfmacc.vf.
// layout[0] and layout[2] may both be 0 (all MR rows are the same row): every row of c must
// be loaded before the first is stored, and no row of c may be written before the end.
extern "C" void COMPUTE(float *c, const float *a, const float *b, int64_t depth, int64_t columns,
                        const int64_t *layout);

static_assert({{BM}} % {{MR}} == 0, "a block of rows is made of whole tiles");
static_assert({{BK}} % {{UNROLL}} == 0, "a whole block of depth needs no single steps");

extern "C" void gemm(float *c, const float *a, const float *b, int64_t m, int64_t n, int64_t k) {
    constexpr int64_t BM = {{BM}};
    constexpr int64_t BK = {{BK}};
    constexpr int64_t MR = {{MR}};
    constexpr int64_t NR = {{NR}};
    constexpr int64_t size = sizeof(float);

    int64_t p = 0;
    do {  // blocks of depth; at least one, so that k = 0 still gives zeros
        const int64_t depth = k - p < BK ? k - p : BK;
        const int64_t accumulate = p != 0;
        const int64_t whole[4] = {k * size, n * size, n * size, accumulate};
        const int64_t single[4] = {0, n * size, 0, accumulate};

        for (int64_t first = 0; first < m; first += BM) {  // blocks of rows
            const int64_t end = m - first < BM ? m : first + BM;

            for (int64_t j = 0; j < n; j += NR) {  // strips of columns
                const int64_t columns = n - j < NR ? n - j : NR;
                const float *strip = b + p * n + j;

                int64_t i = first;
                for (; end - i >= MR; i += MR)  // tiles
                    COMPUTE(c + i * n + j, a + i * k + p, strip, depth, columns, whole);

                if (i < end) {
                    if (!accumulate && end >= MR) {
                        // The last rows once more, together with some already done: these are
                        // overwritten with the same values, as nothing is accumulated.
                        i = end - MR;
                        COMPUTE(c + i * n + j, a + i * k + p, strip, depth, columns, whole);
                    } else {
                        // One row at a time, as a tile whose rows are all the same row.
                        for (; i < end; ++i)
                            COMPUTE(c + i * n + j, a + i * k + p, strip, depth, columns, single);
                    }
                }
            }
        }
        p += BK;
    } while (p < k);
}
