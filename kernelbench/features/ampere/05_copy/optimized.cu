// out = matrix * vector: one block a multiprocessor works through tiles of 16 rows and 256 columns. cp.async brings each into a ring
// of three places two steps before it is needed, past the registers, and the threads multiply meanwhile.
#include <stdint.h>

namespace {

constexpr int height = 16, width = 256, threads = 256, stages = 3;

__device__ uint32_t shared(const void *p) { return (uint32_t)__cvta_generic_to_shared(p); }

// 16 bytes to shared memory, the first `bytes` of them copied and the others zero.
__device__ void copy16(void *to, const void *from, int bytes) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared(to)), "l"(from), "r"(bytes) : "memory");
}

// What this thread copied since the last commit is a group.
__device__ void commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// Until all of this thread's groups but the youngest are there.
__device__ void wait_but_one() { asm volatile("cp.async.wait_group 1;" ::: "memory"); }

__device__ float dot(float4 x, float4 y) { return fmaf(x.x, y.x, fmaf(x.y, y.y, fmaf(x.z, y.z, x.w * y.w))); }

__device__ void fetch(float *tile, const float *matrix, int strip, int first, int rows, int columns) {
    for (int i = 4 * threadIdx.x; i < height * width; i += 4 * threads) {
        const int row = strip * height + i / width, column = first + i % width;
        const bool inside = row < rows && column < columns;
        copy16(tile + i, inside ? matrix + (int64_t)row * columns + column : matrix, inside ? 16 : 0);
    }
}

__global__ void __launch_bounds__(threads) apply_ring(float *out, const float *matrix, const float *vector, int rows, int columns) {
    __shared__ alignas(16) float ring[stages][height * width];
    const int across = (columns + width - 1) / width, strips = (rows + height - 1) / height;
    const int own = (int)blockIdx.x < strips ? (strips - 1 - (int)blockIdx.x) / (int)gridDim.x + 1 : 0, steps = own * across;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    auto begin = [&](int t) {
        if (t < steps)
            fetch(ring[t % stages], matrix, blockIdx.x + t / across * gridDim.x, t % across * width, rows, columns);
        commit();  // also of nothing, so that the count of groups is the count of steps
    };
    begin(0);
    begin(1);
    float sums[2] = {};  // of rows 2 * warp and the next
    for (int t = 0; t < steps; ++t) {
        wait_but_one();   // this thread's part of tile t is there
        __syncthreads();  // everybody's is, and nobody still reads the place of tile t - 1
        begin(t + 2);
        const float *tile = ring[t % stages];
        for (int i = 4 * lane; i < width; i += 128) {
            const int column = t % across * width + i;
            if (column >= columns) continue;
            const float4 y = *reinterpret_cast<const float4 *>(vector + column);
            for (int r = 0; r < 2; ++r) sums[r] += dot(*reinterpret_cast<const float4 *>(tile + (warp * 2 + r) * width + i), y);
        }
        if (t % across != across - 1) continue;
        for (int r = 0; r < 2; ++r) {
            for (int by = 16; by > 0; by /= 2) sums[r] += __shfl_down_sync(~0u, sums[r], by);
            const int row = (blockIdx.x + t / across * gridDim.x) * height + warp * 2 + r;
            if (lane == 0 && row < rows) out[row] = sums[r];
            sums[r] = 0.0f;
        }
    }
}

}  // namespace

extern "C" void apply(float *out, const float *matrix, const float *vector, int64_t rows, int64_t columns, cudaStream_t stream) {
    int processors = 108;
    cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, 0);
    apply_ring<<<processors, threads, 0, stream>>>(out, matrix, vector, (int)rows, (int)columns);
}
