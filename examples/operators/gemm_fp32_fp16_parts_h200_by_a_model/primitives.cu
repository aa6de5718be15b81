// One stage of one warpgroup: 64 x BN x 32 as six wgmma.m64n{BN}k16 (f32 += f16 * f16), both operands in shared memory.
// Registers: the sums stay in the accumulators of wgmma; fragments of A and B are read by the tensor cores themselves.
// All six stand in one asm statement, so that nothing can be moved between them that touches the accumulators.

#define MMA_REGS_0 \
    "%0, %1, %2, %3, %4, %5, %6, %7, " \
    "%8, %9, %10, %11, %12, %13, %14, %15, " \
    "%16, %17, %18, %19, %20, %21, %22, %23, " \
    "%24, %25, %26, %27, %28, %29, %30, %31, " \
    "%32, %33, %34, %35, %36, %37, %38, %39, " \
    "%40, %41, %42, %43, %44, %45, %46, %47, " \
    "%48, %49, %50, %51, %52, %53, %54, %55, " \
    "%56, %57, %58, %59, %60, %61, %62, %63"
#define MMA_REGS_1 \
    ", %64, %65, %66, %67, %68, %69, %70, %71, " \
    "%72, %73, %74, %75, %76, %77, %78, %79, " \
    "%80, %81, %82, %83, %84, %85, %86, %87, " \
    "%88, %89, %90, %91, %92, %93, %94, %95"
#define MMA_REGS_2 \
    ", %96, %97, %98, %99, %100, %101, %102, %103, " \
    "%104, %105, %106, %107, %108, %109, %110, %111, " \
    "%112, %113, %114, %115, %116, %117, %118, %119, " \
    "%120, %121, %122, %123, %124, %125, %126, %127"

#define MMA_SUMS_8(i) \
    "+f"(sums[(i) + 0]), "+f"(sums[(i) + 1]), "+f"(sums[(i) + 2]), "+f"(sums[(i) + 3]), \
    "+f"(sums[(i) + 4]), "+f"(sums[(i) + 5]), "+f"(sums[(i) + 6]), "+f"(sums[(i) + 7])
#define MMA_SUMS_32(i) MMA_SUMS_8((i)), MMA_SUMS_8((i) + 8), MMA_SUMS_8((i) + 16), MMA_SUMS_8((i) + 24)

#if {{BN}} == 256
#define MMA_NAME "wgmma.mma_async.sync.aligned.m64n256k16.f32.f16.f16 "
#define MMA_REGS MMA_REGS_0 MMA_REGS_1 MMA_REGS_2
#define MMA_SUMS MMA_SUMS_32(0), MMA_SUMS_32(32), MMA_SUMS_32(64), MMA_SUMS_32(96)
#define MMA_A "%128"
#define MMA_B "%129"
#define MMA_FRESH "%130"
#elif {{BN}} == 192
#define MMA_NAME "wgmma.mma_async.sync.aligned.m64n192k16.f32.f16.f16 "
#define MMA_REGS MMA_REGS_0 MMA_REGS_1
#define MMA_SUMS MMA_SUMS_32(0), MMA_SUMS_32(32), MMA_SUMS_32(64)
#define MMA_A "%96"
#define MMA_B "%97"
#define MMA_FRESH "%98"
#elif {{BN}} == 128
#define MMA_NAME "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 "
#define MMA_REGS MMA_REGS_0
#define MMA_SUMS MMA_SUMS_32(0), MMA_SUMS_32(32)
#define MMA_A "%64"
#define MMA_B "%65"
#define MMA_FRESH "%66"
#else
#error "BN has to be 128, 192 or 256"
#endif

// Descriptor `name`: the word that holds the start address, moved by `units` of 16 bytes, below the constant word.
#define MMA_DESCRIPTOR(name, from, units) \
    "add.u32 word, " from ", " units ";\n" \
    "mov.b64 " name ", {word, upper};\n"

// sums (+)= a * b; `keep` is the predicate scale-d.
#define MMA_STEP(from_a, from_b, keep) \
    MMA_NAME "{" MMA_REGS "}, " from_a ", " from_b ", " keep ", 1, 1, 0, 0;\n"

static __device__ __forceinline__ void COMPUTE(float (&sums)[{{BN}} / 2], unsigned a, unsigned b, int fresh) {
    // Lower words: start address >> 4 (14 bits), leading offset 1 (bits 16 and up, unused by this layout).
    // Upper word: stride offset 1024 >> 4 = 64, 128-byte swizzle in bit 62 = bit 30 of this word.
    const unsigned lower_a = ((a & 0x3ffffu) >> 4) | 0x10000u;
    const unsigned lower_b = ((b & 0x3ffffu) >> 4) | 0x10000u;
    asm volatile(
        "{\n"
        ".reg .pred keep_first, keep_all;\n"
        ".reg .b32 word, upper;\n"
        ".reg .b64 ah0, al0, ah1, al1, bh0, bl0, bh1, bl1;\n"
        "mov.b32 upper, 0x40000040;\n"
        MMA_DESCRIPTOR("ah0", MMA_A, "0")
        MMA_DESCRIPTOR("ah1", MMA_A, "2")
        MMA_DESCRIPTOR("al0", MMA_A, "4")
        MMA_DESCRIPTOR("al1", MMA_A, "6")
        MMA_DESCRIPTOR("bh0", MMA_B, "0")
        MMA_DESCRIPTOR("bh1", MMA_B, "2")
        MMA_DESCRIPTOR("bl0", MMA_B, "4")
        MMA_DESCRIPTOR("bl1", MMA_B, "6")
        "setp.eq.s32 keep_first, " MMA_FRESH ", 0;\n"
        "setp.eq.s32 keep_all, " MMA_FRESH ", " MMA_FRESH ";\n"
        "wgmma.fence.sync.aligned;\n"
        MMA_STEP("al0", "bh0", "keep_first")
        MMA_STEP("ah0", "bl0", "keep_all")
        MMA_STEP("ah0", "bh0", "keep_all")
        MMA_STEP("al1", "bh1", "keep_all")
        MMA_STEP("ah1", "bl1", "keep_all")
        MMA_STEP("ah1", "bh1", "keep_all")
        "wgmma.commit_group.sync.aligned;\n"
        "}\n"
        : MMA_SUMS
        : "r"(lower_a), "r"(lower_b), "r"(fresh)
        : "memory");
}
