// c = a * b, all n x n and row by row: one element of c at a time, block by block.
// region: macros
// region: device
static void element(float *c, const float *a, const float *b, int64_t n, int64_t row, int64_t column) {
    float sum = 0.0f;
    for (int64_t k = 0; k < n; ++k) sum += a[row * n + k] * b[k * n + column];
    c[row * n + column] = sum;
}
// region: host
extern "C" int matmul(float *c, const float *a, const float *b, int64_t n) {
    if (n % {{BLOCK_X}} != 0 || n % {{BLOCK_Y}} != 0) return WS_INVALID;
    for (int64_t y = 0; y < n; y += {{BLOCK_Y}})
        for (int64_t x = 0; x < n; x += {{BLOCK_X}})
            for (int64_t row = y; row < y + {{BLOCK_Y}}; ++row)
                for (int64_t column = x; column < x + {{BLOCK_X}}; ++column) element(c, a, b, n, row, column);
    return 0;
}
