// The sums of rows: a block takes 1024 columns of a row; each warp adds by shuffles, the first warp adds what the warps have, and
// one atomic brings it to the row's sum.
#include <stdint.h>

namespace {

constexpr int threads = 256, part = 1024;

// The sum over a warp, in lane 0. All 32 lanes take part at each of the five steps.
__device__ float warp_sum(float own) {
    for (int by = 16; by > 0; by /= 2) own += __shfl_down_sync(0xffffffffu, own, by);
    return own;
}

// The sum over a block, in thread 0.
__device__ float block_sum(float own) {
    __shared__ float sums[threads / 32];
    own = warp_sum(own);
    if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = own;
    __syncthreads();
    if (threadIdx.x < 32) own = warp_sum(threadIdx.x < threads / 32 ? sums[threadIdx.x] : 0.0f);
    return own;
}

__global__ void __launch_bounds__(threads) parts(float *out, const float *x, int columns) {
    const int first = blockIdx.x * part, last = min(first + part, columns);
    float own = 0.0f;
    for (int i = first + threadIdx.x; i < last; i += threads) own += x[(int64_t)blockIdx.y * columns + i];
    const float sum = block_sum(own);
    if (threadIdx.x == 0) atomicAdd(out + blockIdx.y, sum);
}

}  // namespace

extern "C" void row_sums(float *out, const float *x, int64_t rows, int64_t columns, cudaStream_t stream) {
    cudaMemsetAsync(out, 0, rows * sizeof(float), stream);
    parts<<<dim3((unsigned)((columns + part - 1) / part), (unsigned)rows), threads, 0, stream>>>(out, x, (int)columns);
}
