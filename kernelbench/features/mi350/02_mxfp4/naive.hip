// A product of MXFP4 numbers without the unit's scales: blocks of 32 are quantised and unpacked by arithmetic into tiles of
// single precision in LDS, one thread an element.

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

__global__ void tiles(__bf16 *c, const __bf16 *a, const int32_t *b, const int32_t *b_scale, int64_t m, int64_t n, int64_t k) {
    // One column more than a row has keeps its columns in different banks.
    __shared__ float left[16][33], right[16][33];
    const int x = threadIdx.x, y = threadIdx.y;
    const int64_t row = (int64_t)blockIdx.y * 16 + y, column = (int64_t)blockIdx.x * 16 + x,
                  other = (int64_t)blockIdx.x * 16 + y;
    float sum = 0.0f;
    for (int64_t k0 = 0; k0 < k; k0 += 32) {
        for (int j = x; j < 32; j += 16) {
            left[y][j] = row < m ? (float)a[row * k + k0 + j] : 0.0f;
            const uint32_t word = other < n ? (uint32_t)b[(other * k + k0 + j) / 8] : 0u;
            const float scale = other < n ? power(b_scale[(other * k + k0) / 32]) : 0.0f;
            right[y][j] = number(word >> 4 * (j % 8) & 15) * scale;
        }
        __syncthreads();
        float largest = 0.0f;
        for (int j = 0; j < 32; ++j) largest = fmaxf(largest, fabsf(left[y][j]));
        __syncthreads();
        const float scale = power(exponent(largest));
        for (int j = x; j < 32; j += 16) left[y][j] = rounded(left[y][j] / scale) * scale;
        __syncthreads();
        for (int j = 0; j < 32; ++j) sum = fmaf(left[y][j], right[x][j], sum);
        __syncthreads();
    }
    if (row < m && column < n) c[row * n + column] = (__bf16)sum;
}

}  // namespace

extern "C" void quantized_product(__bf16 *c, const __bf16 *a, const int32_t *b, const int32_t *b_scale, int64_t m, int64_t n,
                                  int64_t k, hipStream_t stream) {
    const dim3 grid((unsigned)((n + 15) / 16), (unsigned)((m + 15) / 16));
    tiles<<<grid, dim3(16, 16), 0, stream>>>(c, a, b, b_scale, m, n, k);
}
