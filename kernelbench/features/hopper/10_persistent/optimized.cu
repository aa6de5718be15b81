// c = a * transpose(b) by one block a multiprocessor that lives for the whole launch: its copying thread draws the next tile from
// an atomic counter and tells the multiplying warps, and fills the ring for it while they still write out the last one. Tiles are
// numbered in bands of eight rows of tiles, so that those under way at a time share their rows and columns in L2.
#include <cuda.h>
#include <cuda_bf16.h>
#include <stdint.h>

namespace {

constexpr int height = 256, width = 128, depth = 64, stages = 4, band = 8;
constexpr uint32_t a_bytes = height * 128, b_bytes = width * 128, place_bytes = a_bytes + b_bytes;

__device__ unsigned drawn, gone;  // tiles given out, and blocks that got none any more; the last of these clears both

__device__ uint32_t shared(const void *p) { return (uint32_t)__cvta_generic_to_shared(p); }

__device__ void init(uint64_t *barrier, uint32_t arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared(barrier)), "r"(arrivals) : "memory");
}

__device__ void arrive(uint64_t *barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared(barrier)) : "memory");
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

// 128-byte swizzle; 1024 bytes from eight rows to the next eight.
__device__ uint64_t descriptor(const void *tile) {
    return (uint64_t)((shared(tile) & 0x3ffff) >> 4) | 1ull << 16 | (uint64_t)(1024 >> 4) << 32 | 1ull << 62;
}

#define R4(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define R16(i) R4(i), R4(i + 4), R4(i + 8), R4(i + 12)

__device__ void multiply(float (&d)[64], uint64_t a, uint64_t b) {
    asm volatile("wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 "
                 "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, "
                 "%22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, "
                 "%42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, "
                 "%62, %63}, %64, %65, 1, 1, 1, 0, 0;"
                 : R16(0), R16(16), R16(32), R16(48) : "l"(a), "l"(b));
}

// Two results side by side in every eight columns, two rows eight apart: how wgmma leaves 64 x 128 of them to a warpgroup.
__device__ void write(__nv_bfloat16 *c, const float (&d)[64], int row, int column, int m, int n) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < 32; ++i) {
        const int r = row + threadIdx.x % 128 / 32 * 16 + lane / 4 + i % 2 * 8, at = column + i / 2 * 8 + lane % 4 * 2;
        if (r < m && at < n)
            *reinterpret_cast<__nv_bfloat162 *>(c + (int64_t)r * n + at) = __floats2bfloat162_rn(d[2 * i], d[2 * i + 1]);
    }
}

// The tile's row and column among the tiles: down a band, then along it.
__device__ int2 place_of(int tile, int down, int along) {
    const int first = tile / (band * along) * band, rows = min(band, down - first), rest = tile % (band * along);
    return make_int2(first + rest % rows, rest / rows);
}

__global__ void __launch_bounds__(384, 1) persistent(__nv_bfloat16 *c, const __grid_constant__ CUtensorMap a_map,
                                                     const __grid_constant__ CUtensorMap b_map, int m, int n, int k) {
    extern __shared__ unsigned char dynamic[];
    __shared__ uint64_t full[stages], empty[stages], told[2], heard[2];
    __shared__ int tiles[2];
    unsigned char *ring = dynamic + (1024 - shared(dynamic) % 1024) % 1024;
    const int down = (m + height - 1) / height, along = (n + width - 1) / width, steps = (k + depth - 1) / depth;
    if (threadIdx.x == 0) {
        for (int s = 0; s < stages; ++s) init(&full[s], 1), init(&empty[s], 8);
        for (int s = 0; s < 2; ++s) init(&told[s], 1), init(&heard[s], 8);
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();
    int step = 0;  // counts on from tile to tile, as the ring does
    if (threadIdx.x < 128) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
        if (threadIdx.x != 0) return;
        for (int turn = 0;; ++turn) {
            const int tile = (int)atomicAdd(&drawn, 1);
            wait(&heard[turn % 2], turn / 2 % 2 ^ 1);
            tiles[turn % 2] = tile;
            arrive(&told[turn % 2]);
            if (tile >= down * along) break;
            const int2 at = place_of(tile, down, along);
            for (int i = 0; i < steps; ++i, ++step) {
                const int s = step % stages;
                unsigned char *a = ring + s * place_bytes;
                wait(&empty[s], step / stages % 2 ^ 1);
                expect(&full[s], place_bytes);
                load(a, &a_map, i * depth, at.x * height, &full[s]);
                load(a + a_bytes, &b_map, i * depth, at.y * width, &full[s]);
            }
        }
        __threadfence();
        if (atomicAdd(&gone, 1) == gridDim.x - 1) drawn = gone = 0;
        return;
    }
    asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
    const int own = threadIdx.x / 128 - 1;
    const bool speaks = threadIdx.x % 32 == 0;
    for (int turn = 0;; ++turn) {
        wait(&told[turn % 2], turn / 2 % 2);
        const int tile = tiles[turn % 2];
        __syncwarp();
        if (speaks) arrive(&heard[turn % 2]);
        if (tile >= down * along) return;
        float d[2][64] = {};
        for (int i = 0; i < steps; ++i, ++step) {
            const unsigned char *a = ring + step % stages * place_bytes, *b = a + a_bytes;
            wait(&full[step % stages], step / stages % 2);
            asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
            for (int j = 0; j < 4; ++j) {
                multiply(d[0], descriptor(a + own * 16384 + 32 * j), descriptor(b + 32 * j));
                multiply(d[1], descriptor(a + own * 16384 + 8192 + 32 * j), descriptor(b + 32 * j));
            }
            asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
            asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
            if (i > 0 && speaks) arrive(&empty[(step - 1) % stages]);
        }
        asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
        if (speaks) arrive(&empty[(step - 1) % stages]);
        const int2 at = place_of(tile, down, along);
        write(c, d[0], at.x * height + own * 128, at.y * width, m, n);
        write(c, d[1], at.x * height + own * 128 + 64, at.y * width, m, n);
    }
}

// A matrix of bf16 in boxes of so many rows of 128 bytes; what lies outside comes as zeros.
bool describe(CUtensorMap *map, const void *matrix, int64_t rows, int64_t columns, uint32_t box_rows) {
    void *found = nullptr;
    cudaDriverEntryPointQueryResult status;
    cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found, 12000, cudaEnableDefault, &status);
    if (!found) return false;
    const cuuint64_t sizes[] = {(cuuint64_t)columns, (cuuint64_t)rows}, stride[] = {(cuuint64_t)columns * 2};
    const cuuint32_t box[] = {depth, box_rows}, step[] = {1, 1};
    return reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(found)(
               map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, const_cast<void *>(matrix), sizes, stride, box, step,
               CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
               CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

}  // namespace

extern "C" void product(__nv_bfloat16 *c, const __nv_bfloat16 *a, const __nv_bfloat16 *b, int64_t m, int64_t n, int64_t k,
                        cudaStream_t stream) {
    CUtensorMap a_map, b_map;
    if (!describe(&a_map, a, m, k, height) || !describe(&b_map, b, n, k, width)) return;
    int processors = 132;
    cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, 0);
    const int bytes = stages * place_bytes + 1024;
    cudaFuncSetAttribute(persistent, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    persistent<<<processors, 384, bytes, stream>>>(c, a_map, b_map, (int)m, (int)n, (int)k);
}
