// Normalization of rows by clusters of two blocks: each keeps half a row in shared memory, reads the other's sum of squares out of
// the other's shared memory, and scales its half. The row is read once, in one launch.
#include <stdint.h>

namespace {

constexpr int threads = 512;

__device__ uint32_t shared(const void *p) { return (uint32_t)__cvta_generic_to_shared(p); }

// The block's number in its cluster.
__device__ uint32_t rank() {
    uint32_t number;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(number));
    return number;
}

// What lies at the place of `mine` in another block of the cluster.
__device__ float theirs(const float *mine, uint32_t other) {
    uint32_t address;
    float value;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(address) : "r"(shared(mine)), "r"(other));
    asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(value) : "r"(address) : "memory");
    return value;
}

__device__ void arrive() { asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory"); }
__device__ void meet() { asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory"); }

// The sum over a block, in all its threads.
__device__ float block_sum(float own) {
    __shared__ float sums[threads / 32];
    for (int by = 16; by > 0; by /= 2) own += __shfl_xor_sync(~0u, own, by);
    if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = own;
    __syncthreads();
    own = threadIdx.x % 32 < threads / 32 ? sums[threadIdx.x % 32] : 0.0f;
    for (int by = 16; by > 0; by /= 2) own += __shfl_xor_sync(~0u, own, by);
    return own;
}

__global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(threads)
    halves(float *out, float *inverse, const float *x, int columns, float eps) {
    extern __shared__ float4 kept[];  // this block's half of the row
    __shared__ float squares;
    const int row = blockIdx.x / 2, quarters = columns / 8;
    const int64_t first = (int64_t)row * columns + rank() * (columns / 2);
    float own = 0.0f;
    for (int i = threadIdx.x; i < quarters; i += threads) {
        const float4 v = reinterpret_cast<const float4 *>(x + first)[i];
        own += v.x * v.x + v.y * v.y + v.z * v.z + v.w * v.w;
        kept[i] = v;  // the same thread takes it back
    }
    own = block_sum(own);
    if (threadIdx.x == 0) squares = own;
    arrive();
    meet();  // both sums are written, and each block sees the other's
    const float by = 1.0f / sqrtf((own + theirs(&squares, rank() ^ 1)) / (float)columns + eps);
    arrive();  // read: from here the other may leave
    for (int i = threadIdx.x; i < quarters; i += threads) {
        const float4 v = kept[i];
        reinterpret_cast<float4 *>(out + first)[i] = make_float4(v.x * by, v.y * by, v.z * by, v.w * by);
    }
    if (threadIdx.x == 0 && rank() == 0) inverse[row] = by;
    meet();  // leaves only when the other has read
}

}  // namespace

extern "C" void normalize(float *out, float *inverse, const float *x, int64_t rows, int64_t columns, float eps,
                          cudaStream_t stream) {
    const int bytes = (int)columns / 2 * (int)sizeof(float);
    cudaFuncSetAttribute(halves, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    halves<<<(unsigned)(2 * rows), threads, bytes, stream>>>(out, inverse, x, (int)columns, eps);
}
