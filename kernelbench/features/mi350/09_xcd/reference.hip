// c = a * transpose(b): one thread an element, multiplied and added in single precision in the order of k.

namespace {

__global__ void elements(__bf16 *c, const __bf16 *a, const __bf16 *b, int64_t m, int64_t n, int64_t k) {
    const int64_t column = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    const int64_t row = (int64_t)blockIdx.y * blockDim.y + threadIdx.y;
    if (row >= m || column >= n) return;
    float sum = 0.0f;
    for (int64_t i = 0; i < k; ++i) sum = fmaf((float)a[row * k + i], (float)b[column * k + i], sum);
    c[row * n + column] = (__bf16)sum;
}

}  // namespace

extern "C" void product(__bf16 *c, const __bf16 *a, const __bf16 *b, int64_t m, int64_t n, int64_t k, hipStream_t stream) {
    const dim3 grid((unsigned)((n + 15) / 16), (unsigned)((m + 15) / 16));
    elements<<<grid, dim3(16, 16), 0, stream>>>(c, a, b, m, n, k);
}
