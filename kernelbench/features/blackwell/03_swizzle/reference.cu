// c = a * transpose(b): one thread an element, multiplied and added in single precision in the order of k. The eight numbers
// of a 16-byte load are taken one by one.
#include <cuda_bf16.h>
#include <stdint.h>

namespace {

__global__ void elements(__nv_bfloat16 *c, const __nv_bfloat16 *a, const __nv_bfloat16 *b, int64_t m, int64_t n, int64_t k) {
    const int64_t column = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    const int64_t row = (int64_t)blockIdx.y * blockDim.y + threadIdx.y;
    if (row >= m || column >= n) return;
    float sum = 0.0f;
    for (int64_t i = 0; i < k; i += 8) {
        const uint4 x = *reinterpret_cast<const uint4 *>(a + row * k + i);
        const uint4 y = *reinterpret_cast<const uint4 *>(b + column * k + i);
        const __nv_bfloat16 *left = reinterpret_cast<const __nv_bfloat16 *>(&x);
        const __nv_bfloat16 *right = reinterpret_cast<const __nv_bfloat16 *>(&y);
        for (int j = 0; j < 8; ++j) sum = fmaf(__bfloat162float(left[j]), __bfloat162float(right[j]), sum);
    }
    c[row * n + column] = __float2bfloat16_rn(sum);
}

}  // namespace

extern "C" void product(__nv_bfloat16 *c, const __nv_bfloat16 *a, const __nv_bfloat16 *b, int64_t m, int64_t n, int64_t k,
                        cudaStream_t stream) {
    const dim3 block(16, 16);
    elements<<<dim3((unsigned)((n + 15) / 16), (unsigned)((m + 15) / 16)), block, 0, stream>>>(c, a, b, m, n, k);
}
