// A scaled product of E4M3 numbers without tensor cores: both factors become single precision on their way into 32 x 32 tiles
// of shared memory, and are multiplied and added there.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <stdint.h>

namespace {

constexpr int side = 32;

__device__ float number(uint8_t e4m3) { return __half2float(__half(__nv_cvt_fp8_to_halfraw(e4m3, __NV_E4M3))); }

__global__ void tiles(__nv_bfloat16 *c, const uint8_t *a, const uint8_t *b, const float *a_scale, const float *b_scale, int64_t m,
                      int64_t n, int64_t k) {
    __shared__ float left[side][side + 1], right[side][side + 1];
    const int x = threadIdx.x, y = threadIdx.y;
    const int64_t row = (int64_t)blockIdx.y * side + y, column = (int64_t)blockIdx.x * side + x;
    const int64_t fetched = (int64_t)blockIdx.x * side + y;
    float sum = 0.0f;
    for (int64_t first = 0; first < k; first += side) {
        const int64_t at = first + x;
        left[y][x] = row < m && at < k ? number(a[row * k + at]) : 0.0f;
        right[y][x] = fetched < n && at < k ? number(b[fetched * k + at]) : 0.0f;
        __syncthreads();
        for (int i = 0; i < side; ++i) sum = fmaf(left[y][i], right[x][i], sum);
        __syncthreads();
    }
    if (row < m && column < n) c[row * n + column] = __float2bfloat16_rn(sum * a_scale[row] * b_scale[column]);
}

}  // namespace

extern "C" void scaled_product(__nv_bfloat16 *c, const __half *a, const __half *b, const float *a_scale, const float *b_scale,
                               int64_t m, int64_t n, int64_t k, cudaStream_t stream) {
    const dim3 grid((unsigned)((n + side - 1) / side), (unsigned)((m + side - 1) / side));
    tiles<<<grid, dim3(side, side), 0, stream>>>(c, reinterpret_cast<const uint8_t *>(a), reinterpret_cast<const uint8_t *>(b),
                                                 a_scale, b_scale, m, n, k);
}
