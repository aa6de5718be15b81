// The sums of rows: a block takes 1024 columns of a row, its threads leave what they have in shared memory, and one thread adds
// all of it while the others wait.
#include <stdint.h>

namespace {

constexpr int threads = 256, part = 1024;

__global__ void __launch_bounds__(threads) parts(float *out, const float *x, int columns) {
    __shared__ float sums[threads];
    const int first = blockIdx.x * part, last = min(first + part, columns);
    float own = 0.0f;
    for (int i = first + threadIdx.x; i < last; i += threads) own += x[(int64_t)blockIdx.y * columns + i];
    sums[threadIdx.x] = own;
    __syncthreads();
    if (threadIdx.x != 0) return;
    float sum = 0.0f;
    for (int i = 0; i < threads; ++i) sum += sums[i];
    atomicAdd(out + blockIdx.y, sum);
}

}  // namespace

extern "C" void row_sums(float *out, const float *x, int64_t rows, int64_t columns, cudaStream_t stream) {
    cudaMemsetAsync(out, 0, rows * sizeof(float), stream);
    parts<<<dim3((unsigned)((columns + part - 1) / part), (unsigned)rows), threads, 0, stream>>>(out, x, (int)columns);
}
