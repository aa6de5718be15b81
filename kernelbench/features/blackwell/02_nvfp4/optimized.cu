// A block-scaled FP4 product, 128 x 128 a block: numbers come by TMA, scales by tcgen05.cp. Compiled, not run.
#include <cuda.h>
#include <cuda_bf16.h>
#include <stdint.h>

namespace {

constexpr int side = 128;
constexpr int depth = 256;                  // 256 numbers of 4 bits are the 128 bytes of a swizzled row
constexpr uint32_t tile_bytes = side * 128;
constexpr uint32_t scale_bytes = side * 4;  // four scales a row, for the 64 numbers of one instruction
constexpr uint32_t columns = 256;           // of TMEM

__device__ uint32_t shared(const void *p) { return (uint32_t)__cvta_generic_to_shared(p); }

__device__ void init(uint64_t *barrier, uint32_t arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared(barrier)), "r"(arrivals) : "memory");
}

__device__ void expect(uint64_t *barrier, uint32_t bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared(barrier)), "r"(bytes) : "memory");
}

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

// 128-byte swizzle (2 in bits 61 to 63); 1024 bytes from eight rows to the next eight; bit 46 is always 1.
__device__ uint64_t descriptor(const void *tile) {
    return (uint64_t)((shared(tile) & 0x3ffff) >> 4) | 1ull << 16 | (uint64_t)(1024 >> 4) << 32 | 1ull << 46 | 2ull << 61;
}

// Of scales: 32 rows of 16 bytes, not swizzled.
__device__ uint64_t scale_descriptor(const void *block) {
    return (uint64_t)((shared(block) & 0x3ffff) >> 4) | (uint64_t)(128 >> 4) << 32 | 1ull << 46;
}

// Factors in E2M1, columns / 8, scales in UE4M3 (0 in bit 23), rows / 128; the scales' numbers (bits 4 and 29) are 0.
constexpr uint32_t e2m1 = 1, instruction = e2m1 << 7 | e2m1 << 10 | (side / 8) << 17 | (side / 128) << 27;

// 512 bytes into four columns of TMEM, the same for each of the four warps' lanes.
__device__ void copy(uint32_t to, uint64_t from) {
    asm volatile("tcgen05.cp.cta_group::1.32x128b.warpx4 [%0], %1;" ::"r"(to), "l"(from) : "memory");
}

// The sums become, or grow by, the product of 64 columns of both tiles.
__device__ void multiply(uint32_t sums, uint64_t a, uint64_t b, uint32_t a_scale, uint32_t b_scale, bool grow) {
    asm volatile("{\n.reg .pred p;\nsetp.ne.u32 p, %6, 0;\n"
                 "tcgen05.mma.cta_group::1.kind::mxf4nvf4.block_scale.scale_vec::4X [%0], %1, %2, %3, [%4], [%5], p;\n}" ::
                     "r"(sums), "l"(a), "l"(b), "r"(instruction), "r"(a_scale), "r"(b_scale), "r"((uint32_t)grow) : "memory");
}

// An arrival, once all products of this thread are done.
__device__ void commit(uint64_t *barrier) {
    asm volatile("tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%0];" ::"r"(shared(barrier))
                 : "memory");
}

__device__ void before() { asm volatile("tcgen05.fence::before_thread_sync;" ::: "memory"); }
__device__ void after() { asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory"); }

#define R4(i) "=r"(v[i]), "=r"(v[i + 1]), "=r"(v[i + 2]), "=r"(v[i + 3])
#define R16(i) R4(i), R4(i + 4), R4(i + 8), R4(i + 12)

// 32 columns of this thread's lane; nobody may touch v before the wait.
__device__ void fetch(uint32_t (&v)[32], uint32_t from) {
    asm volatile("tcgen05.ld.sync.aligned.32x32b.x32.b32 "
                 "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, "
                 "%23, %24, %25, %26, %27, %28, %29, %30, %31}, [%32];\ntcgen05.wait::ld.sync.aligned;"
                 : R16(0), R16(16) : "r"(from) : "memory");
}

// A row's 16 scales of a step become four words: block q has those of the numbers 64q to 64q + 63. Outside they are zero.
__device__ void arrange(unsigned char *blocks, const int32_t *scales, int64_t row, int64_t rows, int first, int k) {
    unsigned char *at = blocks + threadIdx.x % 32 * 16 + threadIdx.x / 32 * 4;
#pragma unroll
    for (int q = 0; q < 4; ++q) {
        uint32_t word = 0;
        if (row < rows && first + 64 * q < k) {
            const uint4 codes = *reinterpret_cast<const uint4 *>(scales + row * (k / 16) + first / 16 + 4 * q);
            word = codes.x | codes.y << 8 | codes.z << 16 | codes.w << 24;
        }
        *reinterpret_cast<uint32_t *>(at + q * scale_bytes) = word;
    }
}

__global__ void __launch_bounds__(128) blocks(__nv_bfloat16 *c, const __grid_constant__ CUtensorMap a_map,
                                              const __grid_constant__ CUtensorMap b_map, const int32_t *a_scale,
                                              const int32_t *b_scale, float alpha, int m, int n, int k) {
    __shared__ alignas(1024) unsigned char a[tile_bytes], b[tile_bytes];
    __shared__ alignas(128) unsigned char a_blocks[4 * scale_bytes], b_blocks[4 * scale_bytes];
    __shared__ uint64_t full, done;
    __shared__ uint32_t place;
    const int row = blockIdx.y * side, column = blockIdx.x * side, warp = threadIdx.x / 32;
    if (warp == 0) {  // the whole warp
        asm volatile("tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%0], %1;" ::"r"(shared(&place)), "n"(columns)
                     : "memory");
        asm volatile("tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;" ::: "memory");
    }
    if (threadIdx.x == 0) {
        init(&full, 1);
        init(&done, 1);
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    before();
    __syncthreads();
    after();
    const uint32_t sums = place, a_scales = sums + side, b_scales = a_scales + 16;
    uint32_t parity = 0;
    for (int first = 0; first < k; first += depth, parity ^= 1) {
        if (threadIdx.x == 0) {
            expect(&full, 2 * tile_bytes);
            load(a, &a_map, first / 2, row, &full);
            load(b, &b_map, first / 2, column, &full);
        }
        arrange(a_blocks, a_scale, row + threadIdx.x, m, first, k);
        arrange(b_blocks, b_scale, column + threadIdx.x, n, first, k);
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        __syncthreads();
        if (threadIdx.x == 0) {
            wait(&full, parity);
            after();
            for (int q = 0; q < 4; ++q) {
                copy(a_scales + 4 * q, scale_descriptor(a_blocks + q * scale_bytes));
                copy(b_scales + 4 * q, scale_descriptor(b_blocks + q * scale_bytes));
            }
            for (int q = 0; q < 4; ++q)  // 64 numbers are 32 bytes
                multiply(sums, descriptor(a + 32 * q), descriptor(b + 32 * q), a_scales + 4 * q, b_scales + 4 * q,
                         first > 0 || q > 0);
            commit(&done);
        }
        wait(&done, parity);  // tiles, scales and their columns of TMEM may be overwritten
    }
    __syncwarp();
    after();
    const int r = row + threadIdx.x;
    for (int first = 0; first < side; first += 32) {
        uint32_t v[32];
        fetch(v, sums + ((uint32_t)(32 * warp) << 16) + first);
#pragma unroll
        for (int j = 0; j < 32; j += 8) {
            const int at = column + first + j;  // n is a multiple of 8
            __nv_bfloat162 pairs[4];
#pragma unroll
            for (int i = 0; i < 4; ++i)
                pairs[i] = __floats2bfloat162_rn(alpha * __uint_as_float(v[j + 2 * i]),
                                                 alpha * __uint_as_float(v[j + 2 * i + 1]));
            if (r < m && at < n) *reinterpret_cast<uint4 *>(c + (int64_t)r * n + at) = *reinterpret_cast<const uint4 *>(pairs);
        }
        __syncwarp();
    }
    before();
    __syncthreads();  // all warps have read
    if (warp == 0)
        asm volatile("tcgen05.dealloc.cta_group::1.sync.aligned.b32 %0, %1;" ::"r"(sums), "n"(columns) : "memory");
}

// A matrix of bytes in boxes of `side` rows of 128; what lies outside comes as zeros.
bool describe(CUtensorMap *map, const void *matrix, int64_t rows, int64_t bytes) {
    void *found = nullptr;
    cudaDriverEntryPointQueryResult status;
    cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found, 12000, cudaEnableDefault, &status);
    if (!found) return false;
    const cuuint64_t sizes[] = {(cuuint64_t)bytes, (cuuint64_t)rows}, stride[] = {(cuuint64_t)bytes};
    const cuuint32_t box[] = {128, side}, step[] = {1, 1};
    return reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(found)(
               map, CU_TENSOR_MAP_DATA_TYPE_UINT8, 2, const_cast<void *>(matrix), sizes, stride, box, step,
               CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
               CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

}  // namespace

extern "C" void block_scaled_product(__nv_bfloat16 *c, const int32_t *a, const int32_t *b, const int32_t *a_scale,
                                     const int32_t *b_scale, float alpha, int64_t m, int64_t n, int64_t k,
                                     cudaStream_t stream) {
    CUtensorMap a_map, b_map;
    if (!describe(&a_map, a, m, k / 2) || !describe(&b_map, b, n, k / 2)) return;
    const dim3 grid((unsigned)((n + side - 1) / side), (unsigned)((m + side - 1) / side));
    blocks<<<grid, 128, 0, stream>>>(c, a_map, b_map, a_scale, b_scale, alpha, (int)m, (int)n, (int)k);
}
