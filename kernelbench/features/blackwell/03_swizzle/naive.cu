// c = a * transpose(b) by tcgen05 on tiles that the threads place themselves, without a swizzle: eight rows of one 16-byte chunk
// lie together, then the next eight rows, then the next chunk. The four chunks of a row all lie in the same four banks.
#include <cuda_bf16.h>
#include <stdint.h>

namespace {

constexpr int side = 128, depth = 32;  // rows of a tile, and numbers of a row: 64 bytes, four chunks of 16
constexpr uint32_t tile_bytes = side * 64;

__device__ uint32_t shared(const void *p) { return (uint32_t)__cvta_generic_to_shared(p); }

__device__ void init(uint64_t *barrier, uint32_t arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared(barrier)), "r"(arrivals) : "memory");
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

__device__ int place(int row, int chunk) { return chunk * (side * 16) + row * 16; }

// Mode 0, no swizzle; side * 16 bytes from one chunk to the next, 128 from eight rows to the next eight. Bit 46 is always 1.
__device__ uint64_t descriptor(const void *tile) {
    return (uint64_t)((shared(tile) & 0x3ffff) >> 4) | (uint64_t)(side * 16 >> 4) << 16 | (uint64_t)(128 >> 4) << 32 | 1ull << 46;
}

// Sums in fp32, both factors bf16 with k fastest, and the sizes of the tile.
constexpr uint32_t kind = 1u << 4 | 1u << 7 | 1u << 10 | side / 8u << 17 | side / 16u << 24;

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

// A tile of 128 rows from `row` and 32 columns from `column`. Four neighbouring threads take a row: 64 bytes in one piece.
__device__ void fill(unsigned char *tile, const __nv_bfloat16 *matrix, int row, int rows, int column, int columns) {
    uint4 taken[4];
    const int chunk = threadIdx.x % 4, at = column + 8 * chunk;
    for (int i = 0; i < 4; ++i) {
        const int r = row + i * 32 + threadIdx.x / 4;
        const bool inside = r < rows && at < columns;
        taken[i] = inside ? *reinterpret_cast<const uint4 *>(matrix + (int64_t)r * columns + at) : uint4{};
    }
    for (int i = 0; i < 4; ++i) *reinterpret_cast<uint4 *>(tile + place(i * 32 + threadIdx.x / 4, chunk)) = taken[i];
}

__global__ void __launch_bounds__(128) one_tile(__nv_bfloat16 *c, const __nv_bfloat16 *a, const __nv_bfloat16 *b, int m, int n,
                                                int k) {
    __shared__ alignas(1024) unsigned char a_tile[tile_bytes], b_tile[tile_bytes];
    __shared__ uint64_t done;
    __shared__ uint32_t taken;
    const int row = blockIdx.y * side, column = blockIdx.x * side, warp = threadIdx.x / 32;
    if (threadIdx.x == 0) {
        init(&done, 1);
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    if (warp == 0) take(&taken, side);
    meet();
    const uint32_t sums = taken;
    uint32_t parity = 0;
    for (int first = 0; first < k; first += depth, parity ^= 1) {
        fill(a_tile, a, row, m, first, k);
        fill(b_tile, b, column, n, first, k);
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");  // the tensor cores see what threads have written
        __syncthreads();
        if (warp == 0 && elected()) {
            for (int i = 0; i < 2; ++i)  // 16 numbers are two chunks
                multiply(sums, descriptor(a_tile + 2 * side * 16 * i), descriptor(b_tile + 2 * side * 16 * i), first > 0 || i > 0);
            commit(&done);
        }
        wait(&done, parity);  // the products have read both tiles, which may be overwritten
    }
    for (int i = 0; i < side; i += 32)
        write(c, sums + (warp * 32 << 16) + i, row + (int)threadIdx.x, column + i, m, n);
    meet();
    if (warp == 0) give_back(sums, side);
}

}  // namespace

extern "C" void product(__nv_bfloat16 *c, const __nv_bfloat16 *a, const __nv_bfloat16 *b, int64_t m, int64_t n, int64_t k,
                        cudaStream_t stream) {
    const dim3 grid((unsigned)((n + side - 1) / side), (unsigned)((m + side - 1) / side));
    one_tile<<<grid, 128, 0, stream>>>(c, a, b, (int)m, (int)n, (int)k);
}
