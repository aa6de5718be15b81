#include <cuda_runtime.h>
#include <stdint.h>

// One strip: 64 rows x {{IN}} columns, {{BK}} deep, three BF16 products, a fresh accumulator added to sums at the end.
//
// Registers: sums and d are {{IN}} / 2 each; the high parts of A (used by four of the six wgmma) are fetched once by
// ldmatrix into 8 registers, which spares shared memory's bandwidth; the low parts (used once) come by descriptor.
// Turns: the two computing warpgroups issue in turn (named barriers 1 and 2, 256 threads), so that one adds while the
// other multiplies. Warpgroup 0 goes first in each call, and waits at its end until warpgroup 1 has issued as well;
// both call equally often, on the same stages.
static_assert({{IN}} == 128, "the instructions are m64n128k16");
static_assert({{BK}} == 32, "two k16 steps of high parts, two of low parts");
static_assert({{BM}} == 128, "two computing warpgroups take turns");

#define STRIP_EIGHT(K, D, I)                                                              \
    K(D[(I) + 0]), K(D[(I) + 1]), K(D[(I) + 2]), K(D[(I) + 3]),                           \
    K(D[(I) + 4]), K(D[(I) + 5]), K(D[(I) + 6]), K(D[(I) + 7])
#define STRIP_ALL(K, D)                                                                   \
    STRIP_EIGHT(K, D, 0), STRIP_EIGHT(K, D, 8), STRIP_EIGHT(K, D, 16), STRIP_EIGHT(K, D, 24), \
    STRIP_EIGHT(K, D, 32), STRIP_EIGHT(K, D, 40), STRIP_EIGHT(K, D, 48), STRIP_EIGHT(K, D, 56)
#define STRIP_NAMES                                                                       \
    "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "                \
    "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "                \
    "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "                \
    "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}"

// d = A * B', both by descriptor
static __device__ __forceinline__ void strip_first(float (&d)[64], uint64_t a, uint64_t b) {
    asm volatile("{\n\t.reg .pred p;\n\t"
                 "setp.ne.b32 p, %66, 0;\n\t"
                 "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 "
                 STRIP_NAMES ", %64, %65, p, 1, 1, 0, 0;\n\t}"
                 : STRIP_ALL("=f", d)
                 : "l"(a), "l"(b), "r"(0));
}

// d += A * B', both by descriptor
static __device__ __forceinline__ void strip_more(float (&d)[64], uint64_t a, uint64_t b) {
    asm volatile("{\n\t.reg .pred p;\n\t"
                 "setp.ne.b32 p, %66, 0;\n\t"
                 "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 "
                 STRIP_NAMES ", %64, %65, p, 1, 1, 0, 0;\n\t}"
                 : STRIP_ALL("+f", d)
                 : "l"(a), "l"(b), "r"(1));
}

// d += A * B', A in registers
static __device__ __forceinline__ void strip_more(float (&d)[64], const unsigned (&a)[4], uint64_t b) {
    asm volatile("{\n\t.reg .pred p;\n\t"
                 "setp.ne.b32 p, %69, 0;\n\t"
                 "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 "
                 STRIP_NAMES ", {%64, %65, %66, %67}, %68, p, 1, 1, 0;\n\t}"
                 : STRIP_ALL("+f", d)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(1));
}

static __device__ __forceinline__ unsigned strip_address(const unsigned char *p) {
    unsigned to;
    asm("{\n\t.reg .u64 t;\n\t"
        "cvta.to.shared.u64 t, %1;\n\t"
        "cvt.u32.u64 %0, t;\n\t}"
        : "=r"(to) : "l"(p));
    return to;
}

static __device__ __forceinline__ uint64_t strip_descriptor(unsigned at) {
    return ((uint64_t)1 << 62) | ((uint64_t)64 << 32) | (uint64_t)(((at & 0x3ffffu) >> 4) | (1u << 16));
}

static __device__ __forceinline__ void strip_fragment(unsigned (&x)[4], unsigned at) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3]) : "r"(at) : "memory");
}

static __device__ __forceinline__ void strip_fence() {
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

static __device__ __forceinline__ void strip_commit() {
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

static __device__ __forceinline__ void COMPUTE(float (&sums)[{{IN}} / 2], const unsigned char *a,
                                               const unsigned char *b) {
    const unsigned thread = threadIdx.x;
    const unsigned from_a = strip_address(a), from_b = strip_address(b);
    const uint64_t da = strip_descriptor(from_a), db = strip_descriptor(from_b);

    // High parts of A: lanes 0..15 point to rows 0..15 of the warp, piece 0 (2); lanes 16..31 to the same rows, piece 1 (3).
    const unsigned row = ((thread >> 5) & 3u) * 16u + (thread & 15u);
    const unsigned at = from_a + row * 128u + ((((thread >> 4) & 1u) ^ (row & 7u)) << 4);
    unsigned high0[4], high1[4];
    strip_fragment(high0, at);
    strip_fragment(high1, at ^ 32u);

    // Warpgroup 1: not before warpgroup 0 has issued most of its work.
    asm volatile("{\n\t.reg .pred p;\n\t"
                 "setp.ge.u32 p, %0, 128;\n\t"
                 "@p bar.sync 1, 256;\n\t}"
                 ::"r"(thread) : "memory");

    float d[{{IN}} / 2];
    strip_fence();
    strip_first(d, da + 4, db + 0);                           // low * high
    strip_more(d, da + 6, db + 2);
    strip_more(d, high0, db + 4);                             // high * low
    strip_more(d, high1, db + 6);
    strip_commit();

    // The other warpgroup's turn (warpgroup 0 arrives at barrier 1, warpgroup 1 at barrier 2).
    asm volatile("bar.arrive %0, 256;" ::"r"(1u + ((thread >> 7) & 1u)) : "memory");

    strip_fence();
    strip_more(d, high0, db + 0);                             // high * high
    strip_more(d, high1, db + 2);
    strip_commit();
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");

    // The second accumulator; volatile, so that no addition moves before the wait or behind the next strip's products.
#pragma unroll
    for (int i = 0; i < {{IN}} / 2; ++i) asm volatile("add.rn.f32 %0, %0, %1;" : "+f"(sums[i]) : "f"(d[i]));

    // Warpgroup 0: its next turn comes when warpgroup 1 has issued most of its work.
    asm volatile("{\n\t.reg .pred p;\n\t"
                 "setp.lt.u32 p, %0, 128;\n\t"
                 "@p bar.sync 2, 256;\n\t}"
                 ::"r"(thread) : "memory");
}

#undef STRIP_NAMES
#undef STRIP_ALL
#undef STRIP_EIGHT
