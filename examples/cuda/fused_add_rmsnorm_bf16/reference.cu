// residual += input, then input = sum / rms(sum) * weight, row by row and in place. One block a row; the squares are summed
// in shared memory, halving the threads at each step.
#include <cuda_bf16.h>
#include <stdint.h>

namespace {

constexpr int threads = 1024;

__global__ void rows(__nv_bfloat16 *input, __nv_bfloat16 *residual, const __nv_bfloat16 *weight, int64_t hidden, float eps) {
    __shared__ float squares[threads];
    __nv_bfloat16 *x = input + (int64_t)blockIdx.x * hidden;
    __nv_bfloat16 *r = residual + (int64_t)blockIdx.x * hidden;
    float own = 0.0f;
    for (int64_t i = threadIdx.x; i < hidden; i += threads) {
        const float sum = __bfloat162float(x[i]) + __bfloat162float(r[i]);
        own += sum * sum;
    }
    squares[threadIdx.x] = own;
    __syncthreads();
    for (int half = threads / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) squares[threadIdx.x] += squares[threadIdx.x + half];
        __syncthreads();
    }
    const float rms = sqrtf(squares[0] / (float)hidden + eps);
    for (int64_t i = threadIdx.x; i < hidden; i += threads) {
        const float sum = __bfloat162float(x[i]) + __bfloat162float(r[i]);
        r[i] = __float2bfloat16_rn(sum);
        x[i] = __float2bfloat16_rn(sum / rms * __bfloat162float(weight[i]));
    }
}

}  // namespace

extern "C" void fused_add_rmsnorm(__nv_bfloat16 *input, __nv_bfloat16 *residual, const __nv_bfloat16 *weight, int64_t tokens,
                                  int64_t hidden, float eps, cudaStream_t stream) {
    rows<<<(unsigned)tokens, threads, 0, stream>>>(input, residual, weight, hidden, eps);
}
