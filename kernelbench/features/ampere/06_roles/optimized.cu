// out = matrix * vector by eight warps with two roles: warp 0 only copies, warps 1 to 7 only multiply, two rows of a tile each. A ring
// of three places lies between, each with a barrier "full", at which the copies themselves arrive, and one "empty".
#include <stdint.h>

namespace {

constexpr int height = 14, width = 256, threads = 256, stages = 3;

__device__ uint32_t shared(const void *p) { return (uint32_t)__cvta_generic_to_shared(p); }

__device__ void init(uint64_t *barrier, uint32_t arrivals) {
    asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(shared(barrier)), "r"(arrivals) : "memory");
}

__device__ void arrive(uint64_t *barrier) {
    asm volatile("{\n.reg .b64 state;\nmbarrier.arrive.shared.b64 state, [%0];\n}" ::"r"(shared(barrier)) : "memory");
}

// This thread's arrival, once all that it copied so far is there. noinc: the barrier expects it already.
__device__ void arrive_after_copies(uint64_t *barrier) {
    asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(shared(barrier)) : "memory");
}

// Until the phase of this parity is over.
__device__ void wait(uint64_t *barrier, uint32_t parity) {
    uint32_t over;
    do {
        asm volatile("{\n.reg .pred p;\nmbarrier.test_wait.parity.shared.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}"
                     : "=r"(over) : "r"(shared(barrier)), "r"(parity) : "memory");
    } while (!over);
}

// 16 bytes to shared memory, the first `bytes` of them copied and the others zero.
__device__ void copy16(void *to, const void *from, int bytes) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared(to)), "l"(from), "r"(bytes) : "memory");
}

__device__ float dot(float4 x, float4 y) { return fmaf(x.x, y.x, fmaf(x.y, y.y, fmaf(x.z, y.z, x.w * y.w))); }

__device__ void fetch(float *tile, const float *matrix, int strip, int first, int rows, int columns) {
    for (int i = 4 * threadIdx.x; i < height * width; i += 128) {
        const int row = strip * height + i / width, column = first + i % width;
        const bool inside = row < rows && column < columns;
        copy16(tile + i, inside ? matrix + (int64_t)row * columns + column : matrix, inside ? 16 : 0);
    }
}

__global__ void __launch_bounds__(threads) apply_roles(float *out, const float *matrix, const float *vector, int rows,
                                                       int columns) {
    __shared__ alignas(16) float ring[stages][height * width];
    __shared__ uint64_t full[stages], empty[stages];
    const int across = (columns + width - 1) / width, strips = (rows + height - 1) / height;
    const int own = (int)blockIdx.x < strips ? (strips - 1 - (int)blockIdx.x) / (int)gridDim.x + 1 : 0, steps = own * across;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    if (threadIdx.x == 0)
        for (int s = 0; s < stages; ++s) {
            init(&full[s], 32);  // all lanes of warp 0, each after its copies
            init(&empty[s], 7);  // a lane of each multiplying warp
        }
    __syncthreads();
    if (warp == 0) {
        for (int t = 0; t < steps; ++t) {
            const int s = t % stages;
            wait(&empty[s], t / stages % 2 ^ 1);  // of a fresh barrier, the phase before the first is over
            fetch(ring[s], matrix, blockIdx.x + t / across * gridDim.x, t % across * width, rows, columns);
            arrive_after_copies(&full[s]);
        }
        return;
    }
    float sums[2] = {};  // of rows 2 * (warp - 1) and the next
    for (int t = 0; t < steps; ++t) {
        const float *tile = ring[t % stages];
        wait(&full[t % stages], t / stages % 2);
        for (int i = 4 * lane; i < width; i += 128) {
            const int column = t % across * width + i;
            if (column >= columns) continue;
            const float4 y = *reinterpret_cast<const float4 *>(vector + column);
            for (int r = 0; r < 2; ++r)
                sums[r] += dot(*reinterpret_cast<const float4 *>(tile + ((warp - 1) * 2 + r) * width + i), y);
        }
        __syncwarp();
        if (lane == 0) arrive(&empty[t % stages]);
        if (t % across != across - 1) continue;
        for (int r = 0; r < 2; ++r) {
            for (int by = 16; by > 0; by /= 2) sums[r] += __shfl_down_sync(~0u, sums[r], by);
            const int row = (blockIdx.x + t / across * gridDim.x) * height + (warp - 1) * 2 + r;
            if (lane == 0 && row < rows) out[row] = sums[r];
            sums[r] = 0.0f;
        }
    }
}

}  // namespace

extern "C" void apply(float *out, const float *matrix, const float *vector, int64_t rows, int64_t columns, cudaStream_t stream) {
    int processors = 108;
    cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, 0);
    apply_roles<<<processors, threads, 0, stream>>>(out, matrix, vector, (int)rows, (int)columns);
}
