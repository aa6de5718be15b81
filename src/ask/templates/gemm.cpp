// c = a * b, row by row; the order of loops lets a compiler vectorize the innermost.
extern "C" void gemm(float *c, const float *a, const float *b, int64_t m, int64_t n, int64_t k) {
    for (int64_t i = 0; i < m; ++i) {
        float *__restrict row = c + i * n;
        for (int64_t j = 0; j < n; ++j) row[j] = 0.0f;
        for (int64_t p = 0; p < k; ++p) {
            const float factor = a[i * k + p];
            const float *__restrict from = b + p * n;
            for (int64_t j = 0; j < n; ++j) row[j] += factor * from[j];
        }
    }
}
