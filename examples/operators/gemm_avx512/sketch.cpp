#include <cstdlib>
#include <cstring>

// c[MR][NR] += a (k columns of MR) * b (k rows of NR)
extern "C" void COMPUTE(float *c, const float *a, const float *b, int64_t k, int64_t row_bytes);

// Rows of a, MR at a time, column by column, zeros behind the last row.
static void PACK_A(float *to, const float *a, int64_t rows, int64_t depth, int64_t stride) {
    for (int64_t at = 0; at < rows; at += {{MR}})
        for (int64_t k = 0; k < depth; ++k)
            for (int64_t i = 0; i < {{MR}}; ++i) *to++ = at + i < rows ? a[(at + i) * stride + k] : 0.0f;
}

// Columns of b, NR at a time, row by row, zeros behind the last column.
static void PACK_B(float *to, const float *b, int64_t depth, int64_t columns, int64_t stride) {
    for (int64_t at = 0; at < columns; at += {{NR}})
        for (int64_t k = 0; k < depth; ++k)
            for (int64_t j = 0; j < {{NR}}; ++j) *to++ = at + j < columns ? b[k * stride + at + j] : 0.0f;
}

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

extern "C" void gemm(float *c, const float *a, const float *b, int64_t m, int64_t n, int64_t k) {
    const int64_t up_m = ({{BM}} + {{MR}} - 1) / {{MR}} * {{MR}}, up_n = ({{BN}} + {{NR}} - 1) / {{NR}} * {{NR}};
    float *pa = (float *)malloc(up_m * {{BK}} * sizeof(float)), *pb = (float *)malloc(up_n * {{BK}} * sizeof(float));
    float tile[{{MR}} * {{NR}}];
    memset(c, 0, m * n * sizeof(float));
    for (int64_t jc = 0; jc < n; jc += {{BN}})
        for (int64_t pc = 0; pc < k; pc += {{BK}}) {
            const int64_t nb = least({{BN}}, n - jc), kb = least({{BK}}, k - pc);
            PACK_B(pb, b + pc * n + jc, kb, nb, n);
            for (int64_t ic = 0; ic < m; ic += {{BM}}) {
                const int64_t mb = least({{BM}}, m - ic);
                PACK_A(pa, a + ic * k + pc, mb, kb, k);
                for (int64_t j = 0; j < nb; j += {{NR}})
                    for (int64_t i = 0; i < mb; i += {{MR}}) {
                        float *to = c + (ic + i) * n + jc + j;
                        if (mb - i >= {{MR}} && nb - j >= {{NR}}) {
                            COMPUTE(to, pa + i * kb, pb + j * kb, kb, n * 4);
                            continue;
                        }
                        memset(tile, 0, sizeof tile);
                        COMPUTE(tile, pa + i * kb, pb + j * kb, kb, {{NR}} * 4);
                        for (int64_t y = 0; y < least({{MR}}, mb - i); ++y)
                            for (int64_t x = 0; x < least({{NR}}, nb - j); ++x) to[y * n + x] += tile[y * {{NR}} + x];
                    }
            }
        }
    free(pa);
    free(pb);
}
