#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <stdint.h>

// One step along k (BK = 64) is four wgmma m64nNk16 a warpgroup, N = BN. Both operands are read by the tensor cores
// straight from the swizzled tiles in shared memory, so no fragments of A or B take registers; the sums stay in
// registers from the first product to the last.

// Eight accumulators of the instruction's text.
#define WS_G0 "%0, %1, %2, %3, %4, %5, %6, %7"
#define WS_G1 "%8, %9, %10, %11, %12, %13, %14, %15"
#define WS_G2 "%16, %17, %18, %19, %20, %21, %22, %23"
#define WS_G3 "%24, %25, %26, %27, %28, %29, %30, %31"
#define WS_G4 "%32, %33, %34, %35, %36, %37, %38, %39"
#define WS_G5 "%40, %41, %42, %43, %44, %45, %46, %47"
#define WS_G6 "%48, %49, %50, %51, %52, %53, %54, %55"
#define WS_G7 "%56, %57, %58, %59, %60, %61, %62, %63"
#define WS_G8 "%64, %65, %66, %67, %68, %69, %70, %71"
#define WS_G9 "%72, %73, %74, %75, %76, %77, %78, %79"
#define WS_G10 "%80, %81, %82, %83, %84, %85, %86, %87"
#define WS_G11 "%88, %89, %90, %91, %92, %93, %94, %95"

#define WS_L48 WS_G0 ", " WS_G1 ", " WS_G2
#define WS_L64 WS_L48 ", " WS_G3
#define WS_L96 WS_L64 ", " WS_G4 ", " WS_G5
#define WS_L128 WS_L96 ", " WS_G6 ", " WS_G7
#define WS_L192 WS_L128 ", " WS_G8 ", " WS_G9 ", " WS_G10 ", " WS_G11

// The same accumulators as operands.
#define WS_F(j) "+f"(sums[j][0]), "+f"(sums[j][1]), "+f"(sums[j][2]), "+f"(sums[j][3])

#define WS_F48 WS_F(0), WS_F(1), WS_F(2), WS_F(3), WS_F(4), WS_F(5)
#define WS_F64 WS_F48, WS_F(6), WS_F(7)
#define WS_F96 WS_F64, WS_F(8), WS_F(9), WS_F(10), WS_F(11)
#define WS_F128 WS_F96, WS_F(12), WS_F(13), WS_F(14), WS_F(15)
#define WS_F192 WS_F128, WS_F(16), WS_F(17), WS_F(18), WS_F(19), WS_F(20), WS_F(21), WS_F(22), WS_F(23)

#define WS_MMA(n, list, da, db)                                                                          \
    "wgmma.mma_async.sync.aligned.m64n" n "k16.f32.f16.f16 {" list "}, " da ", " db ", p, 1, 1, 0, 0;\n"

// A step of 16 along k is 32 bytes further in the row of 128: 2 in the descriptor's units of 16 bytes.
#define WS_STEP(n, list, da, db, ...)                                                                    \
    asm volatile(                                                                                        \
        "{\n"                                                                                            \
        ".reg .pred p;\n"                                                                                \
        ".reg .b32 one;\n"                                                                               \
        ".reg .b64 a1, a2, a3, b1, b2, b3;\n"                                                            \
        "mov.b32 one, 1;\n"                                                                              \
        "setp.ne.b32 p, one, 0;\n"                                                                       \
        "add.s64 a1, " da ", 2;\n"                                                                       \
        "add.s64 b1, " db ", 2;\n"                                                                       \
        "add.s64 a2, " da ", 4;\n"                                                                       \
        "add.s64 b2, " db ", 4;\n"                                                                       \
        "add.s64 a3, " da ", 6;\n"                                                                       \
        "add.s64 b3, " db ", 6;\n"                                                                       \
        "wgmma.fence.sync.aligned;\n"                                                                    \
        WS_MMA(n, list, da, db)                                                                          \
        WS_MMA(n, list, "a1", "b1")                                                                      \
        WS_MMA(n, list, "a2", "b2")                                                                      \
        WS_MMA(n, list, "a3", "b3")                                                                      \
        "wgmma.commit_group.sync.aligned;\n"                                                             \
        "wgmma.wait_group.sync.aligned 0;\n"                                                             \
        "}\n"                                                                                            \
        : __VA_ARGS__                                                                                    \
        : "l"(desc_a), "l"(desc_b)                                                                       \
        : "memory")

// Descriptor of a K-major tile in the 128-byte swizzle: address / 16 in bits 0..13, leading offset (unused here) 1 in
// bits 16..29, 1024 bytes (8 rows) / 16 from one group of rows to the next in bits 32..45, swizzle 1 in bits 62..63.
static __device__ __forceinline__ uint64_t ws_descriptor(uint32_t at) {
    return ((uint64_t)0x40000040u << 32) | (uint64_t)(((at & 0x3FFFFu) >> 4) | (1u << 16));
}

static __device__ __forceinline__ uint32_t ws_shared(const void *p) {
    uint32_t at;
    asm("{\n"
        ".reg .u64 t;\n"
        "cvta.to.shared.u64 t, %1;\n"
        "cvt.u32.u64 %0, t;\n"
        "}\n"
        : "=r"(at)
        : "l"(p));
    return at;
}

static __device__ __forceinline__ void COMPUTE(float (&sums)[{{BN}} / 8][4], const __half *a, const __half *b) {
    // 64 filters of 128 bytes a warpgroup.
    const uint32_t group = threadIdx.x / 128;
    const uint64_t desc_a = ws_descriptor(ws_shared(a) + group * 8192u);
    const uint64_t desc_b = ws_descriptor(ws_shared(b));
#if {{BN}} == 48
    WS_STEP("48", WS_L48, "%24", "%25", WS_F48);
#elif {{BN}} == 64
    WS_STEP("64", WS_L64, "%32", "%33", WS_F64);
#elif {{BN}} == 96
    WS_STEP("96", WS_L96, "%48", "%49", WS_F96);
#elif {{BN}} == 128
    WS_STEP("128", WS_L128, "%64", "%65", WS_F128);
#elif {{BN}} == 192
    WS_STEP("192", WS_L192, "%96", "%97", WS_F192);
#else
#error "BN is none of 48, 64, 96, 128, 192"
#endif
}
