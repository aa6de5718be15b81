// A block-scaled product of E2M1 numbers: one thread an element, multiplied and added in single precision in the order of k.
// The eight numbers of a word are taken one by one, and each is scaled before it is multiplied, which is exact.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp4.h>
#include <cuda_fp8.h>
#include <stdint.h>

namespace {

__device__ float number(uint32_t e2m1) {
    return __half2float(__half(__nv_cvt_fp4_to_halfraw((__nv_fp4_storage_t)e2m1, __NV_E2M1)));
}

// A code of seven bits is the same number in UE4M3 and in E4M3.
__device__ float scale(int32_t ue4m3) {
    return __half2float(__half(__nv_cvt_fp8_to_halfraw((__nv_fp8_storage_t)ue4m3, __NV_E4M3)));
}

__global__ void elements(__nv_bfloat16 *c, const int32_t *a, const int32_t *b, const int32_t *a_scale, const int32_t *b_scale,
                         float alpha, int64_t m, int64_t n, int64_t k) {
    const int64_t column = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    const int64_t row = (int64_t)blockIdx.y * blockDim.y + threadIdx.y;
    if (row >= m || column >= n) return;
    float sum = 0.0f;
    for (int64_t i = 0; i < k; i += 8) {
        const uint32_t left = (uint32_t)a[(row * k + i) / 8], right = (uint32_t)b[(column * k + i) / 8];
        const float x = scale(a_scale[(row * k + i) / 16]), y = scale(b_scale[(column * k + i) / 16]);
        for (int j = 0; j < 8; ++j) sum = fmaf(x * number(left >> 4 * j & 15), y * number(right >> 4 * j & 15), sum);
    }
    c[row * n + column] = __float2bfloat16_rn(alpha * sum);
}

}  // namespace

extern "C" void block_scaled_product(__nv_bfloat16 *c, const int32_t *a, const int32_t *b, const int32_t *a_scale,
                                     const int32_t *b_scale, float alpha, int64_t m, int64_t n, int64_t k,
                                     cudaStream_t stream) {
    const dim3 grid((unsigned)((n + 15) / 16), (unsigned)((m + 15) / 16));
    elements<<<grid, dim3(16, 16), 0, stream>>>(c, a, b, a_scale, b_scale, alpha, m, n, k);
}
