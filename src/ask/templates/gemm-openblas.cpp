// The same by OpenBLAS, through the interface for C: row-major is 101, not transposed is 111.
extern "C" void cblas_sgemm(int order, int transposed_a, int transposed_b, int m, int n, int k, float alpha, const float *a,
                            int lda, const float *b, int ldb, float beta, float *c, int ldc);

extern "C" void gemm(float *c, const float *a, const float *b, int64_t m, int64_t n, int64_t k) {
    cblas_sgemm(101, 111, 111, (int)m, (int)n, (int)k, 1.0f, a, (int)k, b, (int)n, 0.0f, c, (int)n);
}
