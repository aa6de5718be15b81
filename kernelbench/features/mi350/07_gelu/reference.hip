// gelu(a * transpose(b) + bias): one thread an element, in the order of k.

namespace {

// x * (0.5 + 0.5 * tanh(u)) is x / (1 + exp(-2u)).
__device__ float gelu(float x) {
    const float u = 0.7978845608f * (x + 0.044715f * x * x * x);
    return x / (1.0f + expf(-2.0f * u));
}

__global__ void elements(float *out, const __bf16 *a, const __bf16 *b, const float *bias, int64_t m, int64_t n, int64_t k) {
    const int64_t column = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    const int64_t row = (int64_t)blockIdx.y * blockDim.y + threadIdx.y;
    if (row >= m || column >= n) return;
    float sum = 0.0f;
    for (int64_t i = 0; i < k; ++i) sum = fmaf((float)a[row * k + i], (float)b[column * k + i], sum);
    out[row * n + column] = gelu(sum + bias[column]);
}

}  // namespace

extern "C" void linear_gelu(float *out, const __bf16 *a, const __bf16 *b, const float *bias, int64_t m, int64_t n, int64_t k,
                            hipStream_t stream) {
    const dim3 grid((unsigned)((n + 15) / 16), (unsigned)((m + 15) / 16));
    elements<<<grid, dim3(16, 16), 0, stream>>>(out, a, b, bias, m, n, k);
}
