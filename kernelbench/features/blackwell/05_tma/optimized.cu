// out = matrix * vector: one block a multiprocessor works through tiles of 32 rows and 256 columns. TMA copies three tiles ahead
// into a ring of shared memory; an mbarrier for each place says when its tile is there.
#include <cuda.h>
#include <stdint.h>

namespace {

constexpr int stages = 3, height = 32, width = 256, threads = 256;
constexpr uint32_t tile_bytes = height * width * 4;

__device__ uint32_t shared(const void *p) { return (uint32_t)__cvta_generic_to_shared(p); }

__device__ void init(uint64_t *barrier, uint32_t arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared(barrier)), "r"(arrivals) : "memory");
}

// One arrival, and so many bytes to come in this phase.
__device__ void expect(uint64_t *barrier, uint32_t bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared(barrier)), "r"(bytes) : "memory");
}

// Until the phase of this parity is over.
__device__ void wait(uint64_t *barrier, uint32_t parity) {
    uint32_t over;
    do {
        asm volatile("{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}"
                     : "=r"(over) : "r"(shared(barrier)), "r"(parity) : "memory");
    } while (!over);
}

__device__ void load(void *tile, const CUtensorMap *map, int column, int row, uint64_t *barrier) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::
                     "r"(shared(tile)), "l"(map), "r"(column), "r"(row), "r"(shared(barrier)) : "memory");
}

__device__ float dot(float4 x, float4 y) { return fmaf(x.x, y.x, fmaf(x.y, y.y, fmaf(x.z, y.z, x.w * y.w))); }

__global__ void __launch_bounds__(threads) apply_tiles(float *out, const __grid_constant__ CUtensorMap map, const float *vector,
                                                       int rows, int columns) {
    extern __shared__ unsigned char dynamic[];
    __shared__ uint64_t full[stages];
    float *ring = reinterpret_cast<float *>(dynamic + (128 - shared(dynamic) % 128) % 128);  // TMA writes from multiples of 128
    const int across = (columns + width - 1) / width, strips = (rows + height - 1) / height;
    const int own = blockIdx.x < strips ? (strips - 1 - blockIdx.x) / gridDim.x + 1 : 0, total = own * across;
    if (threadIdx.x == 0) {
        for (int s = 0; s < stages; ++s) init(&full[s], 1);
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();
    // Tile t of this block: strip blockIdx.x + t / across * gridDim.x, and in it t % across.
    const auto fetch = [&](int t) {
        const int row = (blockIdx.x + t / across * gridDim.x) * height;
        expect(&full[t % stages], tile_bytes);
        load(ring + t % stages * height * width, &map, t % across * width, row, &full[t % stages]);
    };
    if (threadIdx.x == 0)
        for (int t = 0; t < stages && t < total; ++t) fetch(t);
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    float sums[4] = {};  // of rows 4 * warp to 4 * warp + 3
    for (int t = 0; t < total; ++t) {
        wait(&full[t % stages], t / stages % 2);  // the parity flips each time round the ring
        const float *tile = ring + t % stages * height * width + warp * 4 * width;
        for (int i = 4 * lane; i < width; i += 128) {
            const int column = t % across * width + i;
            if (column >= columns) continue;
            const float4 y = *reinterpret_cast<const float4 *>(vector + column);
            for (int r = 0; r < 4; ++r) sums[r] += dot(*reinterpret_cast<const float4 *>(tile + r * width + i), y);
        }
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");  // ordinary loads are done before a copy writes there
        __syncthreads();  // all are done with this place of the ring
        if (threadIdx.x == 0 && t + stages < total) fetch(t + stages);
        if (t % across != across - 1) continue;
        for (int r = 0; r < 4; ++r) {
            for (int by = 16; by > 0; by /= 2) sums[r] += __shfl_down_sync(~0u, sums[r], by);
            const int row = (blockIdx.x + t / across * gridDim.x) * height + warp * 4 + r;
            if (lane == 0 && row < rows) out[row] = sums[r];
            sums[r] = 0.0f;
        }
    }
}

bool describe(CUtensorMap *map, const void *matrix, int64_t rows, int64_t columns) {
    void *found = nullptr;
    cudaDriverEntryPointQueryResult status;
    cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found, 12000, cudaEnableDefault, &status);
    if (!found) return false;
    const cuuint64_t sizes[] = {(cuuint64_t)columns, (cuuint64_t)rows}, stride[] = {(cuuint64_t)columns * 4};
    const cuuint32_t box[] = {width, height}, step[] = {1, 1};
    return reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(found)(
               map, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 2, const_cast<void *>(matrix), sizes, stride, box, step,
               CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_NONE, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
               CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

}  // namespace

extern "C" void apply(float *out, const float *matrix, const float *vector, int64_t rows, int64_t columns, cudaStream_t stream) {
    CUtensorMap map;
    if (!describe(&map, matrix, rows, columns)) return;
    int processors = 148;
    cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, 0);
    const int bytes = stages * tile_bytes + 128;
    cudaFuncSetAttribute(apply_tiles, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    apply_tiles<<<processors, threads, bytes, stream>>>(out, map, vector, (int)rows, (int)columns);
}
