// residual += input, then input = sum / rms(sum) * weight, row by row and in place. One block a row; the squares are summed
// in shared memory, halving the threads at each step.
#include <cuda_fp16.h>
#include <stdint.h>

namespace {

constexpr int threads = 1024;

__global__ void rows(__half *input, __half *residual, const __half *weight, int64_t hidden, float eps) {
    __shared__ float squares[threads];
    __half *x = input + (int64_t)blockIdx.x * hidden;
    __half *r = residual + (int64_t)blockIdx.x * hidden;
    float own = 0.0f;
    for (int64_t i = threadIdx.x; i < hidden; i += threads) {
        const float sum = __half2float(x[i]) + __half2float(r[i]);
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
        const float sum = __half2float(x[i]) + __half2float(r[i]);
        r[i] = __float2half_rn(sum);
        x[i] = __float2half_rn(sum / rms * __half2float(weight[i]));
    }
}

}  // namespace

extern "C" void fused_add_rmsnorm(__half *input, __half *residual, const __half *weight, int64_t tokens,
                                  int64_t hidden, float eps, cudaStream_t stream) {
    rows<<<(unsigned)tokens, threads, 0, stream>>>(input, residual, weight, hidden, eps);
}
