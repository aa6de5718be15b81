// c = a * transpose(b) by one block a multiprocessor for the whole launch: it takes every gridDim.x-th tile, by the roles of
// cell 06, and multiplies one into tensor memory while it writes the last. Bands of eight rows of tiles share L2.
#include <cuda.h>
#include <cuda_bf16.h>
#include <stdint.h>

namespace {

constexpr int height = 128, width = 256, depth = 64, stages = 4, band = 8;
constexpr uint32_t a_bytes = height * 128, b_bytes = width * 128, place_bytes = a_bytes + b_bytes;

// These as in cell 06.
__device__ uint32_t shared(const void *p) { return (uint32_t)__cvta_generic_to_shared(p); }

__device__ void init(uint64_t *barrier, uint32_t arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared(barrier)), "r"(arrivals) : "memory");
}

__device__ void arrive(uint64_t *barrier) {
    asm volatile("tcgen05.fence::before_thread_sync;" ::: "memory");
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared(barrier)) : "memory");
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
    asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory");
}

__device__ void load(void *tile, const CUtensorMap *map, int column, int row, uint64_t *barrier) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::
                     "r"(shared(tile)), "l"(map), "r"(column), "r"(row), "r"(shared(barrier)) : "memory");
}

__device__ void meet() {
    asm volatile("tcgen05.fence::before_thread_sync;" ::: "memory");
    __syncthreads();
    asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory");
}

__device__ bool elected() {
    uint32_t one;
    asm volatile("{\n.reg .pred p;\nelect.sync _|p, 0xffffffff;\nselp.u32 %0, 1, 0, p;\n}" : "=r"(one));
    return one;
}

__device__ void take(uint32_t *address, uint32_t columns) {
    asm volatile("tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%0], %1;\n"
                 "tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;" ::"r"(shared(address)), "r"(columns) : "memory");
}

__device__ void give_back(uint32_t address, uint32_t columns) {
    asm volatile("tcgen05.dealloc.cta_group::1.sync.aligned.b32 %0, %1;" ::"r"(address), "r"(columns) : "memory");
}

__device__ uint64_t descriptor(const void *tile) {
    return (uint64_t)((shared(tile) & 0x3ffff) >> 4) | 1ull << 16 | (uint64_t)(1024 >> 4) << 32 | 1ull << 46 | 2ull << 61;
}

constexpr uint32_t kind = 1u << 4 | 1u << 7 | 1u << 10 | width / 8u << 17 | height / 16u << 24;

__device__ void multiply(uint32_t sums, uint64_t a, uint64_t b, uint32_t add) {
    asm volatile("{\n.reg .pred p;\nsetp.ne.u32 p, %4, 0;\ntcgen05.mma.cta_group::1.kind::f16 [%0], %1, %2, %3, p;\n}" ::
                     "r"(sums), "l"(a), "l"(b), "r"(kind), "r"(add) : "memory");
}

__device__ void commit(uint64_t *barrier) {
    asm volatile("tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%0];" ::"r"(shared(barrier)) : "memory");
}

// Eight columns of a warp's 32 rows, a row a lane: 16 bytes of bf16. Small pieces do, for products go on meanwhile.
__device__ void write(__nv_bfloat16 *c, uint32_t from, int row, int column, int m, int n) {
    uint32_t v[8];
    asm volatile("tcgen05.ld.sync.aligned.32x32b.x8.b32 {%0, %1, %2, %3, %4, %5, %6, %7}, [%8];\ntcgen05.wait::ld.sync.aligned;"
                 : "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3]), "=r"(v[4]), "=r"(v[5]), "=r"(v[6]), "=r"(v[7])
                 : "r"(from) : "memory");
    alignas(16) __nv_bfloat162 out[4];
    for (int j = 0; j < 4; ++j)
        out[j] = __floats2bfloat162_rn(__uint_as_float(v[2 * j]), __uint_as_float(v[2 * j + 1]));
    if (row < m && column < n)
        *reinterpret_cast<uint4 *>(c + (int64_t)row * n + column) = *reinterpret_cast<const uint4 *>(out);
}

// The tile's row and column among the tiles: down a band, then along it.
__device__ int2 place_of(int tile, int down, int along) {
    const int first = tile / (band * along) * band, rows = min(band, down - first), rest = tile % (band * along);
    return make_int2(first + rest % rows, rest / rows);
}

__global__ void __launch_bounds__(192, 1) persistent(__nv_bfloat16 *c, const __grid_constant__ CUtensorMap a_map,
                                                     const __grid_constant__ CUtensorMap b_map, int m, int n, int k) {
    extern __shared__ unsigned char dynamic[];
    __shared__ uint64_t full[stages], empty[stages], done[2], written[2];
    __shared__ uint32_t taken;
    unsigned char *ring = dynamic + (1024 - shared(dynamic) % 1024) % 1024;
    const int down = (m + height - 1) / height, along = (n + width - 1) / width, steps = (k + depth - 1) / depth;
    const int warp_role = threadIdx.x / 32, lane = threadIdx.x % 32;  // 0 copies, 1 multiplies, 2-5 write
    if (threadIdx.x == 0) {
        for (int s = 0; s < stages; ++s) init(&full[s], 1), init(&empty[s], 1);
        for (int s = 0; s < 2; ++s) init(&done[s], 1), init(&written[s], 4);
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    if (warp_role == 1) take(&taken, 2 * width);
    meet();
    const uint32_t sums = taken;
    if (warp_role == 0) {
        if (elected()) {
            int step = 0;  // counts on from tile to tile, as the ring does
            for (int tile = blockIdx.x; tile < down * along; tile += gridDim.x) {
                const int2 at = place_of(tile, down, along);
                for (int i = 0; i < steps; ++i, ++step) {
                    unsigned char *a = ring + step % stages * place_bytes;
                    uint64_t *here = &full[step % stages];
                    wait(&empty[step % stages], step / stages % 2 ^ 1);
                    expect(here, place_bytes);
                    load(a, &a_map, i * depth, at.x * height, here);
                    load(a + a_bytes, &b_map, i * depth, at.y * width, here);
                }
            }
        }
        __syncwarp();
    } else if (warp_role == 1) {
        if (elected()) {
            int step = 0, turn = 0;
            for (int tile = blockIdx.x; tile < down * along; tile += gridDim.x, ++turn) {
                wait(&written[turn % 2], turn / 2 % 2 ^ 1);  // the tile before the last has left this place
                for (int i = 0; i < steps; ++i, ++step) {
                    const unsigned char *a = ring + step % stages * place_bytes, *b = a + a_bytes;
                    wait(&full[step % stages], step / stages % 2);
                    for (int j = 0; j < 4; ++j)
                        multiply(sums + turn % 2 * width, descriptor(a + 32 * j), descriptor(b + 32 * j), i > 0 || j > 0);
                    commit(&empty[step % stages]);
                }
                commit(&done[turn % 2]);
            }
        }
        __syncwarp();
    } else {
        const int first = warp_role % 4 * 32;  // a warp can read 32 lanes only
        int turn = 0;
        for (int tile = blockIdx.x; tile < down * along; tile += gridDim.x, ++turn) {
            const int2 at = place_of(tile, down, along);
            const uint32_t from = sums + turn % 2 * width + (first << 16);
            wait(&done[turn % 2], turn / 2 % 2);
            for (int i = 0; i < width; i += 8)
                write(c, from + i, at.x * height + first + lane, at.y * width + i, m, n);
            __syncwarp();
            if (lane == 0) arrive(&written[turn % 2]);
        }
    }
    meet();
    if (warp_role == 1) give_back(sums, 2 * width);
}

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
    int processors = 148;
    cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, 0);
    const int bytes = stages * place_bytes + 1024;
    cudaFuncSetAttribute(persistent, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    persistent<<<processors, 192, bytes, stream>>>(c, a_map, b_map, (int)m, (int)n, (int)k);
}
