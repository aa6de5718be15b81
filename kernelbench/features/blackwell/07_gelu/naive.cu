// out = gelu(a * transpose(b) + bias) in two kernels: the product writes its sums, and the other reads them, adds the bias,
// takes GeLU, and writes them again. The product is the same tcgen05 as in the fused kernel. Compiled, not run.
#include <cuda.h>
#include <cuda_bf16.h>
#include <stdint.h>

namespace {

constexpr int side = 128;                   // rows of a tile, lanes of TMEM, and columns of the sums there
constexpr int depth = 64;                   // 64 bf16 are the 128 bytes of a swizzled row
constexpr uint32_t tile_bytes = side * 128;

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

// A tile whose rows are 128 bytes long and lie in the 128-byte swizzle (mode 2 in bits 61 to 63); eight rows, 1024 bytes, lie
// from one group of rows to the next (bits 32 to 45, in units of 16 bytes); bit 46 is this architecture's version.
__device__ uint64_t descriptor(const void *tile) {
    return (uint64_t)((shared(tile) & 0x3ffff) >> 4) | 1ull << 16 | (uint64_t)(1024 >> 4) << 32 | 1ull << 46 | 2ull << 61;
}

// Sums in f32 (bit 4), factors in bf16 (bits 7 and 10) with k fastest, columns / 8 (bit 17), rows / 16 (bit 24).
constexpr uint32_t instruction = 1u << 4 | 1u << 7 | 1u << 10 | (side / 8) << 17 | (side / 16) << 24;

// The sums in TMEM become, or grow by, the product of 16 columns of both tiles. By one thread.
__device__ void multiply(uint32_t sums, uint64_t a, uint64_t b, bool grow) {
    asm volatile("{\n.reg .pred p;\nsetp.ne.u32 p, %4, 0;\ntcgen05.mma.cta_group::1.kind::f16 [%0], %1, %2, %3, p;\n}" ::
                     "r"(sums), "l"(a), "l"(b), "r"(instruction), "r"((uint32_t)grow) : "memory");
}

// The barrier gets an arrival when all products that this thread asked for are done.
__device__ void commit(uint64_t *barrier) {
    asm volatile("tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%0];" ::"r"(shared(barrier))
                 : "memory");
}

// Order between tcgen05's operations and what threads tell each other.
__device__ void before() { asm volatile("tcgen05.fence::before_thread_sync;" ::: "memory"); }
__device__ void after() { asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory"); }

#define R4(i) "=r"(v[i]), "=r"(v[i + 1]), "=r"(v[i + 2]), "=r"(v[i + 3])
#define R16(i) R4(i), R4(i + 4), R4(i + 8), R4(i + 12)

// 32 columns of this thread's lane. The wait stands in the same statement, so that nobody takes a register before.
__device__ void fetch(uint32_t (&v)[32], uint32_t from) {
    asm volatile("tcgen05.ld.sync.aligned.32x32b.x32.b32 "
                 "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, "
                 "%23, %24, %25, %26, %27, %28, %29, %30, %31}, [%32];\ntcgen05.wait::ld.sync.aligned;"
                 : R16(0), R16(16) : "r"(from) : "memory");
}

__global__ void __launch_bounds__(128) product(float *out, const __grid_constant__ CUtensorMap a_map,
                                               const __grid_constant__ CUtensorMap b_map, int m, int n, int k) {
    __shared__ alignas(1024) unsigned char tiles[2 * tile_bytes];
    __shared__ uint64_t full, done;
    __shared__ uint32_t place;
    unsigned char *a = tiles, *b = tiles + tile_bytes;
    const int row = blockIdx.y * side, column = blockIdx.x * side, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    if (warp == 0) {  // all of it: 128 columns of TMEM, whose address comes into shared memory
        asm volatile("tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%0], %1;" ::"r"(shared(&place)), "n"(side)
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
    const uint32_t sums = place;
    uint32_t parity = 0;
    for (int first = 0; threadIdx.x == 0 && first < k; first += depth, parity ^= 1) {
        expect(&full, 2 * tile_bytes);
        load(a, &a_map, first, row, &full);
        load(b, &b_map, first, column, &full);
        wait(&full, parity);
        after();
        for (int i = 0; i < 4; ++i)  // 16 bf16 are 32 bytes
            multiply(sums, descriptor(a + 32 * i), descriptor(b + 32 * i), first > 0 || i > 0);
        commit(&done);
        wait(&done, parity);  // the products are done with the tiles, too
    }
    before();
    __syncthreads();  // from one thread, which has waited for the last products, to all
    after();
    // A warp reads its 32 lanes of TMEM, a row each, and turns them in shared memory, where the tiles lay: then a lane has one
    // column of all rows, and its neighbours the neighbouring columns.
    float *mine = reinterpret_cast<float *>(tiles) + warp * 32 * 33;
    for (int first = 0; first < side; first += 32) {
        uint32_t v[32];
        fetch(v, sums + ((uint32_t)(32 * warp) << 16) + first);
#pragma unroll
        for (int j = 0; j < 32; ++j) mine[lane * 33 + j] = __uint_as_float(v[j]);
        __syncwarp();
        const int at = column + first + lane, top = row + 32 * warp;
        if (at < n)
            for (int i = 0; i < min(32, m - top); ++i) out[(int64_t)(top + i) * n + at] = mine[i * 33 + lane];
        __syncwarp();
    }
    before();
    __syncthreads();  // all warps have read
    if (warp == 0)
        asm volatile("tcgen05.dealloc.cta_group::1.sync.aligned.b32 %0, %1;" ::"r"(sums), "n"(side) : "memory");
}

__device__ float gelu(float x) { return 0.5f * x * (1.0f + erff(x * 0.70710678f)); }

// Four numbers a thread; n is a multiple of 8, so they belong to one row.
__global__ void take_gelu(float4 *out, const float *bias, int64_t quarters, int64_t n) {
    const int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= quarters) return;
    const float4 add = *reinterpret_cast<const float4 *>(bias + i * 4 % n), x = out[i];
    out[i] = make_float4(gelu(x.x + add.x), gelu(x.y + add.y), gelu(x.z + add.z), gelu(x.w + add.w));
}

// A matrix of bf16, row by row, in boxes of `side` rows of 128 bytes; what lies outside comes as zeros.
bool describe(CUtensorMap *map, const void *matrix, int64_t rows, int64_t columns) {
    void *found = nullptr;
    cudaDriverEntryPointQueryResult status;
    cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found, 12000, cudaEnableDefault, &status);
    if (!found) return false;
    const cuuint64_t sizes[] = {(cuuint64_t)columns, (cuuint64_t)rows}, stride[] = {(cuuint64_t)columns * 2};
    const cuuint32_t box[] = {depth, side}, step[] = {1, 1};
    return reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(found)(
               map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, const_cast<void *>(matrix), sizes, stride, box, step,
               CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
               CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

}  // namespace

extern "C" void linear_gelu(float *out, const __nv_bfloat16 *a, const __nv_bfloat16 *b, const float *bias, int64_t m, int64_t n,
                            int64_t k, cudaStream_t stream) {
    CUtensorMap a_map, b_map;
    if (!describe(&a_map, a, m, k) || !describe(&b_map, b, n, k)) return;
    const dim3 grid((unsigned)((n + side - 1) / side), (unsigned)((m + side - 1) / side));
    product<<<grid, 128, 0, stream>>>(out, a_map, b_map, (int)m, (int)n, (int)k);
    const int64_t quarters = m * n / 4;
    take_gelu<<<(unsigned)((quarters + 255) / 256), 256, 0, stream>>>(reinterpret_cast<float4 *>(out), bias, quarters, n);
}
