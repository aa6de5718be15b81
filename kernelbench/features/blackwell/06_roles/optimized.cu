// c = a * transpose(b), a tile of 128 x 256 a block, by six warps: one is the producer and starts copies, one starts products,
// four read the sums from tensor memory and write them. A ring of four places lies between the first two.
#include <cuda.h>
#include <cuda_bf16.h>
#include <stdint.h>

namespace {

constexpr int height = 128, width = 256, depth = 64, stages = 4;  // 64 bf16 are the 128 bytes of a swizzled row
constexpr uint32_t a_bytes = height * 128, b_bytes = width * 128, place_bytes = a_bytes + b_bytes;

__device__ uint32_t shared(const void *p) { return (uint32_t)__cvta_generic_to_shared(p); }

__device__ void init(uint64_t *barrier, uint32_t arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared(barrier)), "r"(arrivals) : "memory");
}

// One arrival, and so many bytes to come in this phase.
__device__ void expect(uint64_t *barrier, uint32_t bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared(barrier)), "r"(bytes) : "memory");
}

// Until the phase of this parity is over; what tcgen05 does next sees all that was done before.
__device__ void wait(uint64_t *barrier, uint32_t parity) {
    uint32_t over;
    do {
        asm volatile("{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}"
                     : "=r"(over) : "r"(shared(barrier)), "r"(parity) : "memory");
    } while (!over);
    asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory");
}

__device__ void load(void *tile, const CUtensorMap *map, int column, int row, uint64_t *barrier) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::
                     "r"(shared(tile)), "l"(map), "r"(column), "r"(row), "r"(shared(barrier)) : "memory");
}

// __syncthreads, also between what tcgen05 does before and after it.
__device__ void meet() {
    asm volatile("tcgen05.fence::before_thread_sync;" ::: "memory");
    __syncthreads();
    asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory");
}

// True in one lane of a whole warp; the compiler knows that it is one.
__device__ bool elected() {
    uint32_t one;
    asm volatile("{\n.reg .pred p;\nelect.sync _|p, 0xffffffff;\nselp.u32 %0, 1, 0, p;\n}" : "=r"(one));
    return one;
}

// Columns of tensor memory, a power of two from 32 to 512, taken and given back by the same whole warp.
__device__ void take(uint32_t *address, uint32_t columns) {
    asm volatile("tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%0], %1;\n"
                 "tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;" ::"r"(shared(address)), "r"(columns) : "memory");
}

__device__ void give_back(uint32_t address, uint32_t columns) {
    asm volatile("tcgen05.dealloc.cta_group::1.sync.aligned.b32 %0, %1;" ::"r"(address), "r"(columns) : "memory");
}

// 128-byte swizzle (2 in bits 61 to 63); 1024 bytes from eight rows to the next eight; bit 46 is always 1.
__device__ uint64_t descriptor(const void *tile) {
    return (uint64_t)((shared(tile) & 0x3ffff) >> 4) | 1ull << 16 | (uint64_t)(1024 >> 4) << 32 | 1ull << 46 | 2ull << 61;
}

// Sums in fp32, both factors bf16 with k fastest, and the sizes of the tile.
constexpr uint32_t kind = 1u << 4 | 1u << 7 | 1u << 10 | width / 8u << 17 | height / 16u << 24;

// 16 columns of both tiles; `add` is 0 where the sums begin.
__device__ void multiply(uint32_t sums, uint64_t a, uint64_t b, uint32_t add) {
    asm volatile("{\n.reg .pred p;\nsetp.ne.u32 p, %4, 0;\ntcgen05.mma.cta_group::1.kind::f16 [%0], %1, %2, %3, p;\n}" ::
                     "r"(sums), "l"(a), "l"(b), "r"(kind), "r"(add) : "memory");
}

// An arrival, once all products of this thread are done.
__device__ void commit(uint64_t *barrier) {
    asm volatile("tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%0];" ::"r"(shared(barrier)) : "memory");
}

#define W4(i) "=r"(v[i]), "=r"(v[i + 1]), "=r"(v[i + 2]), "=r"(v[i + 3])
#define W16(i) W4(i), W4(i + 4), W4(i + 8), W4(i + 12)

// 32 columns of a warp's 32 rows: each lane has one row. Nothing may touch v before the wait, so both are one piece.
__device__ void write(__nv_bfloat16 *c, uint32_t from, int row, int column, int m, int n) {
    uint32_t v[32];
    asm volatile("tcgen05.ld.sync.aligned.32x32b.x32.b32 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
                 "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, [%32];\n"
                 "tcgen05.wait::ld.sync.aligned;" : W16(0), W16(16) : "r"(from) : "memory");
#pragma unroll
    for (int i = 0; i < 32; i += 8) {
        alignas(16) __nv_bfloat162 out[4];
        for (int j = 0; j < 4; ++j)
            out[j] = __floats2bfloat162_rn(__uint_as_float(v[i + 2 * j]), __uint_as_float(v[i + 2 * j + 1]));
        if (row < m && column + i < n)
            *reinterpret_cast<uint4 *>(c + (int64_t)row * n + column + i) = *reinterpret_cast<const uint4 *>(out);
    }
}

__global__ void __launch_bounds__(192, 1) roles(__nv_bfloat16 *c, const __grid_constant__ CUtensorMap a_map,
                                                const __grid_constant__ CUtensorMap b_map, int m, int n, int k) {
    extern __shared__ unsigned char dynamic[];
    __shared__ uint64_t full[stages], empty[stages], done;
    __shared__ uint32_t place;
    unsigned char *ring = dynamic + (1024 - shared(dynamic) % 1024) % 1024;
    const int row = blockIdx.y * height, column = blockIdx.x * width, steps = (k + depth - 1) / depth;
    const int warp_role = threadIdx.x / 32, lane = threadIdx.x % 32;  // 0 copies, 1 multiplies, 2 to 5 write
    if (threadIdx.x == 0) {
        for (int s = 0; s < stages; ++s) {
            init(&full[s], 1);   // the producer, and its bytes
            init(&empty[s], 1);  // the commit of the products that read the place
        }
        init(&done, 1);
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    if (warp_role == 1) take(&place, width);
    meet();
    const uint32_t sums = place;
    if (warp_role == 0) {
        if (elected())
            for (int t = 0; t < steps; ++t) {
                const int s = t % stages;
                unsigned char *a = ring + s * place_bytes;
                wait(&empty[s], t / stages % 2 ^ 1);  // of a fresh barrier, the phase before the first is over
                expect(&full[s], place_bytes);
                load(a, &a_map, t * depth, row, &full[s]);
                load(a + a_bytes, &b_map, t * depth, column, &full[s]);
            }
        __syncwarp();
    } else if (warp_role == 1) {
        if (elected()) {
            for (int t = 0; t < steps; ++t) {
                const unsigned char *a = ring + t % stages * place_bytes, *b = a + a_bytes;
                wait(&full[t % stages], t / stages % 2);
                for (int i = 0; i < 4; ++i)
                    multiply(sums, descriptor(a + 32 * i), descriptor(b + 32 * i), t > 0 || i > 0);
                commit(&empty[t % stages]);  // nobody waits here: the tensor cores themselves free the place
            }
            commit(&done);
        }
        __syncwarp();
    } else {
        const int quarter = warp_role % 4;  // a warp can read these 32 lanes only
        wait(&done, 0);
        for (int i = 0; i < width; i += 32)
            write(c, sums + (quarter * 32 << 16) + i, row + quarter * 32 + lane, column + i, m, n);
    }
    meet();
    if (warp_role == 1) give_back(sums, width);
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
    const int bytes = stages * place_bytes + 1024;
    cudaFuncSetAttribute(roles, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    const dim3 grid((unsigned)((n + width - 1) / width), (unsigned)((m + height - 1) / height));
    roles<<<grid, 192, bytes, stream>>>(c, a_map, b_map, (int)m, (int)n, (int)k);
}
