// c = a * transpose(b) by wgmma on tiles that the threads place themselves, in the 128-byte swizzle: of the eight 16-byte
// chunks of a row, chunk i goes where chunk i ^ (row % 8) would. A row's chunks and a column's then lie in different banks.
#include <cuda_bf16.h>
#include <stdint.h>

namespace {

constexpr int side = 64;  // rows of a tile, and numbers of a row: 128 bytes
constexpr uint32_t tile_bytes = side * 128;

__device__ uint32_t shared(const void *p) { return (uint32_t)__cvta_generic_to_shared(p); }

__device__ int place(int row, int chunk) { return row * 128 + (chunk ^ row % 8) * 16; }

// Mode 1, the 128-byte swizzle; 1024 bytes from eight rows to the next eight.
__device__ uint64_t descriptor(const void *tile) {
    return (uint64_t)((shared(tile) & 0x3ffff) >> 4) | 1ull << 16 | (uint64_t)(1024 >> 4) << 32 | 1ull << 62;
}

#define R4(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define R16(i) R4(i), R4(i + 4), R4(i + 8), R4(i + 12)

__device__ void multiply(float (&d)[32], uint64_t a, uint64_t b) {
    asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "
                 "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, "
                 "%23, %24, %25, %26, %27, %28, %29, %30, %31}, %32, %33, 1, 1, 1, 0, 0;"
                 : R16(0), R16(16) : "l"(a), "l"(b));
}

// A tile of 64 rows from `row` and 64 columns from `column`. Eight neighbouring threads take a row: 128 bytes in one piece.
__device__ void fill(unsigned char *tile, const __nv_bfloat16 *matrix, int row, int rows, int column, int columns) {
    uint4 taken[4];
    const int chunk = threadIdx.x % 8, at = column + 8 * chunk;
    for (int i = 0; i < 4; ++i) {
        const int r = row + i * 16 + threadIdx.x / 8;
        const bool inside = r < rows && at < columns;
        taken[i] = inside ? *reinterpret_cast<const uint4 *>(matrix + (int64_t)r * columns + at) : uint4{};
    }
    for (int i = 0; i < 4; ++i) *reinterpret_cast<uint4 *>(tile + place(i * 16 + threadIdx.x / 8, chunk)) = taken[i];
}

__global__ void __launch_bounds__(128) warpgroup(__nv_bfloat16 *c, const __nv_bfloat16 *a, const __nv_bfloat16 *b, int m, int n,
                                                 int k) {
    __shared__ alignas(1024) unsigned char a_tile[tile_bytes], b_tile[tile_bytes];
    const int row = blockIdx.y * side, column = blockIdx.x * side;
    float d[32] = {};
    for (int first = 0; first < k; first += side) {
        fill(a_tile, a, row, m, first, k);
        fill(b_tile, b, column, n, first, k);
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");  // the tensor cores see what threads have written
        __syncthreads();
        asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
        for (int i = 0; i < 4; ++i) multiply(d, descriptor(a_tile + 32 * i), descriptor(b_tile + 32 * i));
        asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
        asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
        __syncthreads();
    }
    const int lane = threadIdx.x % 32;
    for (int half = 0; half < 2; ++half) {
        const int r = row + threadIdx.x / 32 * 16 + lane / 4 + 8 * half;
        for (int j = 0; j < 8; ++j) {
            const int at = column + 8 * j + lane % 4 * 2;
            if (r < m && at < n)
                *reinterpret_cast<__nv_bfloat162 *>(c + (int64_t)r * n + at) =
                    __floats2bfloat162_rn(d[4 * j + 2 * half], d[4 * j + 2 * half + 1]);
        }
    }
}

}  // namespace

extern "C" void product(__nv_bfloat16 *c, const __nv_bfloat16 *a, const __nv_bfloat16 *b, int64_t m, int64_t n, int64_t k,
                        cudaStream_t stream) {
    const dim3 grid((unsigned)((n + side - 1) / side), (unsigned)((m + side - 1) / side));
    warpgroup<<<grid, 128, 0, stream>>>(c, a, b, (int)m, (int)n, (int)k);
}
