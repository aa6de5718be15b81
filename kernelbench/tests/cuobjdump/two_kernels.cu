__global__ void softplus(const float* x, float* y, long n) {
    __shared__ float tile[256];
    long i = blockIdx.x * (long)blockDim.x + threadIdx.x;
    if (i < n) {
        tile[threadIdx.x] = x[i];
        float v = tile[threadIdx.x];
        y[i] = fmaxf(v, 0.f) + log1pf(expf(-fabsf(v)));
    }
}
template <int N> __global__ void spilly(const float* x, float* y) {
    float a[N];
    for (int i = 0; i < N; ++i) a[i] = x[i * 32 + threadIdx.x];
    for (int k = 0; k < (int)y[0]; ++k) for (int i = 0; i < N; ++i) a[i] = fmaf(a[(i * 7 + k) % N], a[i], 1.f);
    for (int i = 0; i < N; ++i) y[i * 32 + threadIdx.x] = a[i];
}
void go(const float* x, float* y, long n) { softplus<<<(n + 255) / 256, 256>>>(x, y, n); spilly<28><<<1, 32>>>(x, y); }
