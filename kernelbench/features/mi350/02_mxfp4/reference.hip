// A product of MXFP4 numbers, one thread an element: the left factor's blocks of 32 are quantised anew by each.

namespace {

// The exponent of a block's scale: its largest number lies in [4, 8) times 2 to it, and E2M1 ends at 6.
__device__ int exponent(float largest) {
    const int biased = (int)(__builtin_bit_cast(uint32_t, largest) >> 23 & 255) - 2;
    return largest == 0.0f || biased < 1 ? 127 : biased;
}

__device__ float power(int biased) { return __builtin_bit_cast(float, (uint32_t)biased << 23); }

// To the nearest of 0, 0.5, 1, 1.5, 2, 3, 4, 6; to the even code where two are as near; at most 6.
__device__ float rounded(float x) {
    const float size = fabsf(x), step = size < 2.0f ? 0.5f : size < 4.0f ? 1.0f : 2.0f;
    const float near = fminf(__builtin_rintf(size / step) * step, 6.0f);
    return x < 0.0f ? -near : near;
}

__device__ float number(uint32_t code) {
    const uint32_t exponent = code >> 1 & 3;
    const float size = exponent ? power(126 + exponent) * (1.0f + 0.5f * (code & 1)) : 0.5f * (code & 1);
    return code & 8 ? -size : size;
}

__global__ void elements(__bf16 *c, const __bf16 *a, const int32_t *b, const int32_t *b_scale, int64_t m, int64_t n,
                         int64_t k) {
    const int64_t column = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    const int64_t row = (int64_t)blockIdx.y * blockDim.y + threadIdx.y;
    if (row >= m || column >= n) return;
    float sum = 0.0f;
    for (int64_t i = 0; i < k; i += 32) {
        float largest = 0.0f;
        for (int j = 0; j < 32; ++j) largest = fmaxf(largest, fabsf((float)a[row * k + i + j]));
        const int biased = exponent(largest);
        const float left = power(biased), right = power(b_scale[(column * k + i) / 32]);
        for (int j = 0; j < 32; ++j) {
            const uint32_t word = (uint32_t)b[(column * k + i + j) / 8];
            const float x = rounded((float)a[row * k + i + j] / left) * left;
            sum = fmaf(x, number(word >> 4 * (j % 8) & 15) * right, sum);
        }
    }
    c[row * n + column] = (__bf16)sum;
}

}  // namespace

extern "C" void quantized_product(__bf16 *c, const __bf16 *a, const int32_t *b, const int32_t *b_scale, int64_t m, int64_t n,
                                  int64_t k, hipStream_t stream) {
    const dim3 grid((unsigned)((n + 15) / 16), (unsigned)((m + 15) / 16));
    elements<<<grid, dim3(16, 16), 0, stream>>>(c, a, b, b_scale, m, n, k);
}
