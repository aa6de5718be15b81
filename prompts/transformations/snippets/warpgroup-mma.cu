#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <type_traits>
// Tensor cores of a warp group: 128 threads, thread 0 of them at a multiple of 128 in a block with one row of threads.
// A tile for them in fast memory is of `rows` by `columns` elements, __half or __nv_bfloat16, `columns` a multiple of 64, and begins at a multiple of 1024
// bytes. It lies in chunks of 64 columns, one chunk after another; a row of a chunk has 128 bytes, and its eight pieces of 16 bytes
// are permuted (the 128-byte swizzle).
// The place of an element in such a tile, in elements from its beginning.
__host__ __device__ constexpr int swizzled(int rows, int row, int column) {
    return (column / 64 * rows + row) * 64 + (column % 64 / 8 ^ row % 8) * 8 + column % 8;
}
// The first address from here on at which a tile may begin.
__device__ __forceinline__ unsigned char *tiles_begin(unsigned char *shared) {
    return shared + (1024 - static_cast<unsigned>(__cvta_generic_to_shared(shared)) % 1024) % 1024;
}
// Copies a tile from a matrix with rows of `stride` elements, by all threads of a block with one row of threads. The barrier of the
// block that must follow makes it visible to the tensor cores.
template <int rows, int columns, class Element>
__device__ __forceinline__ void copy_swizzled(Element *tile, const Element *from, int stride) {
    for (int at = threadIdx.x; at < rows * columns / 8; at += blockDim.x) {
        const int row = at / (columns / 8), column = at % (columns / 8) * 8;
        *reinterpret_cast<uint4 *>(tile + swizzled(rows, row, column)) =
            *reinterpret_cast<const uint4 *>(from + static_cast<size_t>(row) * stride + column);
    }
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
// Begins a batch of products: before the first one, by all threads of the warp group.
__device__ __forceinline__ void group_begin() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
// Ends a batch of products, which run while the threads go on.
__device__ __forceinline__ void group_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
// Waits until at most `pending` of the warp group's batches are under way. The sums may be read behind group_wait<0>.
template <int pending> __device__ __forceinline__ void group_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(pending) : "memory");
}
// What the tensor cores are told of a tile: its address, and the bytes from chunk to chunk.
template <class Element> __device__ __forceinline__ uint64_t described(const Element *tile, unsigned chunk) {
    const uint64_t at = static_cast<unsigned>(__cvta_generic_to_shared(tile)) & 0x3ffff;
    return at >> 4 | static_cast<uint64_t>(chunk >> 4) << 16 | static_cast<uint64_t>(1024 >> 4) << 32 | 1ull << 62;
}
#define SUMS_4(i) "+f"(sums[i]), "+f"(sums[i + 1]), "+f"(sums[i + 2]), "+f"(sums[i + 3])
#define SUMS_32(i) SUMS_4(i), SUMS_4(i + 4), SUMS_4(i + 8), SUMS_4(i + 12), SUMS_4(i + 16), SUMS_4(i + 20), SUMS_4(i + 24), SUMS_4(i + 28)
#define LIST_A "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
    "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define LIST_B "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
    "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define LIST_C "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, " \
    "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"
#define LIST_D "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, " \
    "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
// sums += a * b by one instruction: a 64 x 16, b 16 x (twice the number of sums), both of the first argument's elements.
#define MULTIPLY_16(ELEMENT, TYPE) \
    __device__ __forceinline__ void multiply_16(const ELEMENT *, float (&sums)[32], uint64_t a, uint64_t b) { \
        asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32." TYPE "." TYPE " {" LIST_A "}, %32, %33, 1, 1, 1, 0, 1;" \
                     : SUMS_32(0) : "l"(a), "l"(b)); \
    } \
    __device__ __forceinline__ void multiply_16(const ELEMENT *, float (&sums)[64], uint64_t a, uint64_t b) { \
        asm volatile("wgmma.mma_async.sync.aligned.m64n128k16.f32." TYPE "." TYPE " {" LIST_A ", " LIST_B "}, %64, %65, 1, 1, 1, 0, 1;" \
                     : SUMS_32(0), SUMS_32(32) : "l"(a), "l"(b)); \
    } \
    __device__ __forceinline__ void multiply_16(const ELEMENT *, float (&sums)[96], uint64_t a, uint64_t b) { \
        asm volatile("wgmma.mma_async.sync.aligned.m64n192k16.f32." TYPE "." TYPE " {" LIST_A ", " LIST_B ", " LIST_C "}, %96, %97, 1, 1, 1, 0, 1;" \
                     : SUMS_32(0), SUMS_32(32), SUMS_32(64) : "l"(a), "l"(b)); \
    } \
    __device__ __forceinline__ void multiply_16(const ELEMENT *, float (&sums)[128], uint64_t a, uint64_t b) { \
        asm volatile("wgmma.mma_async.sync.aligned.m64n256k16.f32." TYPE "." TYPE " {" LIST_A ", " LIST_B ", " LIST_C ", " LIST_D "}, %128, %129, 1, 1, 1, 0, 1;" \
                     : SUMS_32(0), SUMS_32(32), SUMS_32(64), SUMS_32(96) : "l"(a), "l"(b)); \
    }
MULTIPLY_16(__half, "f16")
MULTIPLY_16(__nv_bfloat16, "bf16")
#undef MULTIPLY_16
#undef SUMS_4
#undef SUMS_32
#undef LIST_A
#undef LIST_B
#undef LIST_C
#undef LIST_D
// sums += a * b, where `a` begins 64 rows of a tile of 64 columns, at a row that is a multiple of 64, and `b` is a tile of 64 rows
// and 64, 128, 192 or 256 columns: a thread has half as many sums as `b` has columns. Between group_begin and group_commit.
template <int count, class Element>
__device__ __forceinline__ void group_multiply(float (&sums)[count], const Element *a, const Element *b) {
    const uint64_t of_a = described(a, 16), of_b = described(b, 64 * 128);
#pragma unroll
    for (int step = 0; step < 4; ++step) multiply_16(a, sums, of_a + 2 * step, of_b + 128 * step);
}
// Sets all sums to zero.
template <int count> __device__ __forceinline__ void group_clear(float (&sums)[count]) {
#pragma unroll
    for (int i = 0; i < count; ++i) sums[i] = 0.0f;
}
// Stores the sums of 64 rows into a matrix with rows of `stride` elements: of halves, to which they are rounded, or of floats.
template <int count, class Element>
__device__ __forceinline__ void group_store(Element *to, int stride, const float (&sums)[count]) {
    static_assert(std::is_same_v<Element, __half> || std::is_same_v<Element, float>);
    const int lane = threadIdx.x % 32, first = threadIdx.x % 128 / 32 * 16 + lane / 4;
#pragma unroll
    for (int i = 0; i < count / 2; ++i) {
        const int row = first + i % 2 * 8, column = i / 2 * 8 + lane % 4 * 2;
        Element *at = to + static_cast<size_t>(row) * stride + column;
        if constexpr (sizeof(Element) == sizeof(float))
            *reinterpret_cast<float2 *>(at) = make_float2(sums[2 * i], sums[2 * i + 1]);
        else
            *reinterpret_cast<__half2 *>(at) = __floats2half2_rn(sums[2 * i], sums[2 * i + 1]);
    }
}
