#include <cstdint>
#include <cuda_runtime.h>

namespace gemm_compute {

constexpr int kRows = {{TM}};                           // sums of a thread, down
constexpr int kColumns = {{TN}};                        // sums of a thread, across
constexpr int kGroups = kColumns / 4;                   // float4s of B in one step of the depth
constexpr int kDepth = {{BK}};
constexpr int kPiece = 8;                               // steps of the depth that are unrolled
constexpr int kNextRowA = {{LM}} * ({{BK}} + 4) * 4;    // bytes between two rows of a thread
constexpr int kNextStepB = {{BN}} * 4;                  // bytes between two steps of the depth
constexpr int kNextGroupB = 4 * (32 / {{LM}}) * 4;      // bytes between two float4s of a thread

static_assert(kDepth % kPiece == 0, "the depth of a tile is a multiple of a piece");
static_assert(kGroups <= kRows, "the loads of B are spread over the rows");

static __device__ __forceinline__ unsigned shared_address(const float *p) {
    unsigned address;
    asm("{\n\t"
        ".reg .u64 t;\n\t"
        "cvta.to.shared.u64 t, %1;\n\t"
        "cvt.u32.u64 %0, t;\n\t"
        "}"
        : "=r"(address)
        : "l"(p));
    return address;
}

static __device__ __forceinline__ void load4(float &x, float &y, float &z, float &w, unsigned address) {
    asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(x), "=f"(y), "=f"(z), "=f"(w)
                 : "r"(address));
}

static __device__ __forceinline__ void multiply_add(float &sum, float x, float y) {
    asm volatile("fma.rn.f32 %0, %1, %2, %0;" : "+f"(sum) : "f"(x), "f"(y));
}

}  // namespace gemm_compute

// Registers: sums; four steps of the depth of every row of A (one set: a row's float4 is replaced right after its last
// use, a whole step before its next one); two sets of B, one in use and one being loaded.
static __device__ __forceinline__ void COMPUTE(float (&sums)[{{TM}}][{{TN}}], const float *a, const float *b) {
    using namespace gemm_compute;

    unsigned from_a = shared_address(a);
    unsigned from_b = shared_address(b);

    float part_a[kRows][4];
    float part_b[2][kColumns];

    // The first step's fragments.
#pragma unroll
    for (int q = 0; q < kGroups; ++q)
        load4(part_b[0][4 * q], part_b[0][4 * q + 1], part_b[0][4 * q + 2], part_b[0][4 * q + 3],
              from_b + (unsigned)(q * kNextGroupB));
#pragma unroll
    for (int i = 0; i < kRows; ++i)
        load4(part_a[i][0], part_a[i][1], part_a[i][2], part_a[i][3], from_a + (unsigned)(i * kNextRowA));

#pragma unroll 1
    for (int p = 0; p < kDepth; p += kPiece) {
#pragma unroll
        for (int s = 0; s < kPiece; ++s) {
            const int now = s & 1, next = now ^ 1, part = s & 3;
#pragma unroll
            for (int i = 0; i < kRows; ++i) {
                // B of the next step, one float4 with each of the first rows
                if (i < kGroups)
                    load4(part_b[next][4 * i], part_b[next][4 * i + 1], part_b[next][4 * i + 2],
                          part_b[next][4 * i + 3], from_b + (unsigned)((s + 1) * kNextStepB + i * kNextGroupB));
                // one row of sums; to and fro, so that operands at the turn are used again
#pragma unroll
                for (int e = 0; e < kColumns; ++e) {
                    const int j = (i & 1) ? kColumns - 1 - e : e;
                    multiply_add(sums[i][j], part_a[i][part], part_b[now][j]);
                }
                // this row of A is used up: its next four steps
                if (part == 3)
                    load4(part_a[i][0], part_a[i][1], part_a[i][2], part_a[i][3],
                          from_a + (unsigned)(i * kNextRowA + (s + 1) * 4));
            }
        }
        // opaque, so that all addresses of a piece stay one register plus a constant
        asm volatile("add.u32 %0, %0, %1;" : "+r"(from_a) : "n"(kPiece * 4));
        asm volatile("add.u32 %0, %0, %1;" : "+r"(from_b) : "n"(kPiece * kNextStepB));
    }
}
