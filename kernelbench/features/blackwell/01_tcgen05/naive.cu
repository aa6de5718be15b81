// c = a * transpose(b) without tensor cores: 32 x 32 tiles of both factors in shared memory, one multiply-add after the other.
#include <cuda_bf16.h>
#include <stdint.h>

namespace {

constexpr int side = 32;

__global__ void tiles(__nv_bfloat16 *c, const __nv_bfloat16 *a, const __nv_bfloat16 *b, int64_t m, int64_t n, int64_t k) {
    __shared__ float left[side][side + 1], right[side][side + 1];
    const int x = threadIdx.x, y = threadIdx.y;
    const int64_t row = (int64_t)blockIdx.y * side + y, column = (int64_t)blockIdx.x * side + x;
    const int64_t fetched = (int64_t)blockIdx.x * side + y;
    float sum = 0.0f;
    for (int64_t first = 0; first < k; first += side) {
        const int64_t at = first + x;
        left[y][x] = row < m && at < k ? __bfloat162float(a[row * k + at]) : 0.0f;
        right[y][x] = fetched < n && at < k ? __bfloat162float(b[fetched * k + at]) : 0.0f;
        __syncthreads();
        for (int i = 0; i < side; ++i) sum = fmaf(left[y][i], right[x][i], sum);
        __syncthreads();
    }
    if (row < m && column < n) c[row * n + column] = __float2bfloat16_rn(sum);
}

}  // namespace

extern "C" void product(__nv_bfloat16 *c, const __nv_bfloat16 *a, const __nv_bfloat16 *b, int64_t m, int64_t n, int64_t k,
                        cudaStream_t stream) {
    const dim3 grid((unsigned)((n + side - 1) / side), (unsigned)((m + side - 1) / side));
    tiles<<<grid, dim3(side, side), 0, stream>>>(c, a, b, m, n, k);
}
