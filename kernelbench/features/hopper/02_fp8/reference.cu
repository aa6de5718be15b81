// A scaled product of E4M3 numbers: one thread an element, multiplied and added in single precision in the order of k. The
// sixteen numbers of a 16-byte load are taken one by one.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <stdint.h>

namespace {

__device__ float number(uint8_t e4m3) { return __half2float(__half(__nv_cvt_fp8_to_halfraw(e4m3, __NV_E4M3))); }

__global__ void elements(__nv_bfloat16 *c, const uint8_t *a, const uint8_t *b, const float *a_scale, const float *b_scale,
                         int64_t m, int64_t n, int64_t k) {
    const int64_t column = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    const int64_t row = (int64_t)blockIdx.y * blockDim.y + threadIdx.y;
    if (row >= m || column >= n) return;
    float sum = 0.0f;
    for (int64_t i = 0; i < k; i += 16) {
        const uint4 x = *reinterpret_cast<const uint4 *>(a + row * k + i);
        const uint4 y = *reinterpret_cast<const uint4 *>(b + column * k + i);
        const uint8_t *left = reinterpret_cast<const uint8_t *>(&x);
        const uint8_t *right = reinterpret_cast<const uint8_t *>(&y);
        for (int j = 0; j < 16; ++j) sum = fmaf(number(left[j]), number(right[j]), sum);
    }
    c[row * n + column] = __float2bfloat16_rn(sum * a_scale[row] * b_scale[column]);
}

}  // namespace

extern "C" void scaled_product(__nv_bfloat16 *c, const __half *a, const __half *b, const float *a_scale, const float *b_scale,
                               int64_t m, int64_t n, int64_t k, cudaStream_t stream) {
    const dim3 grid((unsigned)((n + 15) / 16), (unsigned)((m + 15) / 16));
    elements<<<grid, dim3(16, 16), 0, stream>>>(c, reinterpret_cast<const uint8_t *>(a), reinterpret_cast<const uint8_t *>(b),
                                                a_scale, b_scale, m, n, k);
}
