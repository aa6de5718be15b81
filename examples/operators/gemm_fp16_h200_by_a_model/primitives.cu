// Registers: the sums are the only registers of the product; A' and B' are read by wgmma from shared memory.
// Load:      nothing to do: the ring of TMA stages is the caller's, the operands are named by descriptors.
// Compute:   four wgmma of 64 x {{BN}} x 16, issued back to back, none of which waits.
// Store:     the sums stay where they are.
namespace primitives {

#define PRIMITIVES_SUMS_8(i)                                                                                      \
    "+f"(d[(i) + 0]), "+f"(d[(i) + 1]), "+f"(d[(i) + 2]), "+f"(d[(i) + 3]), "+f"(d[(i) + 4]), "+f"(d[(i) + 5]), \
        "+f"(d[(i) + 6]), "+f"(d[(i) + 7])

template <int N>
struct Mma;

template <>
struct Mma<256> {
    static __device__ __forceinline__ void issue(float (&d)[128], unsigned long long desc_a, unsigned long long desc_b,
                                                 int scale) {
        asm volatile(
            "{\n"
            ".reg .pred p;\n"
            "setp.ne.b32 p, %130, 0;\n"
            "wgmma.mma_async.sync.aligned.m64n256k16.f32.f16.f16 "
            "{%0, %1, %2, %3, %4, %5, %6, %7, "
            "%8, %9, %10, %11, %12, %13, %14, %15, "
            "%16, %17, %18, %19, %20, %21, %22, %23, "
            "%24, %25, %26, %27, %28, %29, %30, %31, "
            "%32, %33, %34, %35, %36, %37, %38, %39, "
            "%40, %41, %42, %43, %44, %45, %46, %47, "
            "%48, %49, %50, %51, %52, %53, %54, %55, "
            "%56, %57, %58, %59, %60, %61, %62, %63, "
            "%64, %65, %66, %67, %68, %69, %70, %71, "
            "%72, %73, %74, %75, %76, %77, %78, %79, "
            "%80, %81, %82, %83, %84, %85, %86, %87, "
            "%88, %89, %90, %91, %92, %93, %94, %95, "
            "%96, %97, %98, %99, %100, %101, %102, %103, "
            "%104, %105, %106, %107, %108, %109, %110, %111, "
            "%112, %113, %114, %115, %116, %117, %118, %119, "
            "%120, %121, %122, %123, %124, %125, %126, %127}, "
            "%128, %129, p, 1, 1, 0, 1;\n"
            "}\n"
            : PRIMITIVES_SUMS_8(0), PRIMITIVES_SUMS_8(8), PRIMITIVES_SUMS_8(16), PRIMITIVES_SUMS_8(24),
              PRIMITIVES_SUMS_8(32), PRIMITIVES_SUMS_8(40), PRIMITIVES_SUMS_8(48), PRIMITIVES_SUMS_8(56),
              PRIMITIVES_SUMS_8(64), PRIMITIVES_SUMS_8(72), PRIMITIVES_SUMS_8(80), PRIMITIVES_SUMS_8(88),
              PRIMITIVES_SUMS_8(96), PRIMITIVES_SUMS_8(104), PRIMITIVES_SUMS_8(112), PRIMITIVES_SUMS_8(120)
            : "l"(desc_a), "l"(desc_b), "r"(scale));
    }
};

template <>
struct Mma<128> {
    static __device__ __forceinline__ void issue(float (&d)[64], unsigned long long desc_a, unsigned long long desc_b,
                                                 int scale) {
        asm volatile(
            "{\n"
            ".reg .pred p;\n"
            "setp.ne.b32 p, %66, 0;\n"
            "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 "
            "{%0, %1, %2, %3, %4, %5, %6, %7, "
            "%8, %9, %10, %11, %12, %13, %14, %15, "
            "%16, %17, %18, %19, %20, %21, %22, %23, "
            "%24, %25, %26, %27, %28, %29, %30, %31, "
            "%32, %33, %34, %35, %36, %37, %38, %39, "
            "%40, %41, %42, %43, %44, %45, %46, %47, "
            "%48, %49, %50, %51, %52, %53, %54, %55, "
            "%56, %57, %58, %59, %60, %61, %62, %63}, "
            "%64, %65, p, 1, 1, 0, 1;\n"
            "}\n"
            : PRIMITIVES_SUMS_8(0), PRIMITIVES_SUMS_8(8), PRIMITIVES_SUMS_8(16), PRIMITIVES_SUMS_8(24),
              PRIMITIVES_SUMS_8(32), PRIMITIVES_SUMS_8(40), PRIMITIVES_SUMS_8(48), PRIMITIVES_SUMS_8(56)
            : "l"(desc_a), "l"(desc_b), "r"(scale));
    }
};

#undef PRIMITIVES_SUMS_8

// The upper word of both descriptors is the same constant: stride offset 1024 >> 4, swizzle of 128 bytes (bit 62).
// Only the lower word moves with s, and its address field cannot overflow: shared memory ends below 0x3FFFF.
static __device__ __forceinline__ unsigned long long descriptor(unsigned low) {
    return (unsigned long long)low | ((1024ull >> 4) << 32) | (1ull << 62);
}

}  // namespace primitives

static __device__ __forceinline__ void COMPUTE(float (&sums)[{{BN}} / 2], unsigned a, unsigned b, int accumulate) {
    const unsigned low_a = ((a & 0x3FFFFu) >> 4) | (1u << 16);
    const unsigned low_b = ((b & 0x3FFFFu) >> 4) | ((8192u >> 4) << 16);

    // 16 columns of A' are 32 bytes; 16 rows of B' are 2048 bytes of a panel. The address field counts 16 bytes.
    primitives::Mma<{{BN}}>::issue(sums, primitives::descriptor(low_a), primitives::descriptor(low_b), accumulate);
    primitives::Mma<{{BN}}>::issue(sums, primitives::descriptor(low_a + 2u), primitives::descriptor(low_b + 128u), 1);
    primitives::Mma<{{BN}}>::issue(sums, primitives::descriptor(low_a + 4u), primitives::descriptor(low_b + 256u), 1);
    primitives::Mma<{{BN}}>::issue(sums, primitives::descriptor(low_a + 6u), primitives::descriptor(low_b + 384u), 1);
}
