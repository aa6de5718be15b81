// y = 2 x. A kernel that needs no GPU: a loop in its host function.
extern "C" void twice(float *y, const float *x, int64_t n, cudaStream_t) {
    for (int64_t i = 0; i < n; ++i) y[i] = 2 * x[i];
}
