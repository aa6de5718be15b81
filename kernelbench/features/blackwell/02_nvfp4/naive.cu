// A block-scaled product of E2M1 numbers without tensor cores: both factors become scaled single precision on their way into
// 32 x 32 tiles of shared memory, and are multiplied and added there.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp4.h>
#include <cuda_fp8.h>
#include <stdint.h>

namespace {

constexpr int side = 32;

// Number i of a matrix: four bits of a word, and the seven of its block's scale, which mean the same in UE4M3 and in E4M3.
__device__ float number(const int32_t *matrix, const int32_t *scales, int64_t i) {
    const uint32_t e2m1 = (uint32_t)matrix[i / 8] >> 4 * (i % 8) & 15;
    const float by = __half2float(__half(__nv_cvt_fp8_to_halfraw((__nv_fp8_storage_t)scales[i / 16], __NV_E4M3)));
    return by * __half2float(__half(__nv_cvt_fp4_to_halfraw((__nv_fp4_storage_t)e2m1, __NV_E2M1)));
}

__global__ void tiles(__nv_bfloat16 *c, const int32_t *a, const int32_t *b, const int32_t *a_scale, const int32_t *b_scale,
                      float alpha, int64_t m, int64_t n, int64_t k) {
    __shared__ float left[side][side + 1], right[side][side + 1];
    const int x = threadIdx.x, y = threadIdx.y;
    const int64_t row = (int64_t)blockIdx.y * side + y, column = (int64_t)blockIdx.x * side + x;
    const int64_t fetched = (int64_t)blockIdx.x * side + y;
    float sum = 0.0f;
    for (int64_t first = 0; first < k; first += side) {
        const int64_t at = first + x;
        left[y][x] = row < m && at < k ? number(a, a_scale, row * k + at) : 0.0f;
        right[y][x] = fetched < n && at < k ? number(b, b_scale, fetched * k + at) : 0.0f;
        __syncthreads();
        for (int i = 0; i < side; ++i) sum = fmaf(left[y][i], right[x][i], sum);
        __syncthreads();
    }
    if (row < m && column < n) c[row * n + column] = __float2bfloat16_rn(alpha * sum);
}

}  // namespace

extern "C" void block_scaled_product(__nv_bfloat16 *c, const int32_t *a, const int32_t *b, const int32_t *a_scale,
                                     const int32_t *b_scale, float alpha, int64_t m, int64_t n, int64_t k,
                                     cudaStream_t stream) {
    const dim3 grid((unsigned)((n + side - 1) / side), (unsigned)((m + side - 1) / side));
    tiles<<<grid, dim3(side, side), 0, stream>>>(c, a, b, a_scale, b_scale, alpha, m, n, k);
}
