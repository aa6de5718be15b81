#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <stdint.h>

namespace conv_compute {

constexpr int kRowsOf16 = {{WM}} / 16;     // fragments of A in a step: 16 x 16 each
constexpr int kColumnsOf8 = {{WN}} / 8;    // fragments of B in a step: 16 x 8 each
constexpr int kSteps = {{BK}} / 16;        // steps of mma in a tile
constexpr int kStrideA = {{BK}} + 8;       // halves
constexpr int kStrideB = {{BN}} + 8;       // halves

// Two sets of fragments (load the next while this one computes) where the registers take them, else one.
constexpr int kWarpsRaw = ({{BM}} / {{WM}}) * ({{BN}} / {{WN}});
constexpr int kWarps = kWarpsRaw > 0 ? kWarpsRaw : 1;
constexpr int kShare = 65536 / (kWarps * 32);
constexpr int kLimit = kShare < 255 ? kShare : 255;
constexpr int kNeeded = kRowsOf16 * kColumnsOf8 * 4 + 2 * (kRowsOf16 * 4 + kColumnsOf8 * 2) + 32;
constexpr int kBuffers = (kSteps > 1 && kNeeded <= kLimit) ? 2 : 1;

// Four 8x8 matrices, as they lie.
static __device__ __forceinline__ void ldmatrix4(uint32_t &r0, uint32_t &r1, uint32_t &r2, uint32_t &r3, uint32_t at) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];\n"
                 : "=r"(r0), "=r"(r1), "=r"(r2), "=r"(r3)
                 : "r"(at)
                 : "memory");
}

// Four 8x8 matrices, each transposed.
static __device__ __forceinline__ void ldmatrix4t(uint32_t &r0, uint32_t &r1, uint32_t &r2, uint32_t &r3, uint32_t at) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];\n"
                 : "=r"(r0), "=r"(r1), "=r"(r2), "=r"(r3)
                 : "r"(at)
                 : "memory");
}

static __device__ __forceinline__ void mma(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};\n"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// The fragments of one step; at_a and at_b are this lane's addresses of that step.
static __device__ __forceinline__ void load(uint32_t (&fa)[kRowsOf16][4], uint32_t (&fb)[kColumnsOf8][2], uint32_t at_a, uint32_t at_b) {
#pragma unroll
    for (int i = 0; i < kRowsOf16; ++i)
        ldmatrix4(fa[i][0], fa[i][1], fa[i][2], fa[i][3], at_a + (uint32_t)(i * 16 * kStrideA * 2));
#pragma unroll
    for (int j = 0; j < kColumnsOf8; j += 2)
        ldmatrix4t(fb[j][0], fb[j][1], fb[j + 1][0], fb[j + 1][1], at_b + (uint32_t)(j * 8 * 2));
}

}  // namespace conv_compute

static __device__ __forceinline__ void COMPUTE(float (&sums)[{{WM}} / 16][{{WN}} / 8][4], const __half *a, const __half *b) {
    using namespace conv_compute;

    // Lanes 0..15 name the rows of the left 8 columns, lanes 16..31 those of the right 8: for A (row, depth) and,
    // transposed on the way, for B (depth, pixel).
    const int lane = (int)threadIdx.x % 32;
    const int row = lane % 16, column = lane / 16 * 8;
    const uint32_t at_a = (uint32_t)__cvta_generic_to_shared(a) + (uint32_t)((row * kStrideA + column) * 2);
    const uint32_t at_b = (uint32_t)__cvta_generic_to_shared(b) + (uint32_t)((row * kStrideB + column) * 2);

    uint32_t fa[kBuffers][kRowsOf16][4];
    uint32_t fb[kBuffers][kColumnsOf8][2];

    conv_compute::load(fa[0], fb[0], at_a, at_b);
#pragma unroll
    for (int k = 0; k < kSteps; ++k) {
        if (kBuffers == 2 && k + 1 < kSteps)
            conv_compute::load(fa[(k + 1) % kBuffers], fb[(k + 1) % kBuffers], at_a + (uint32_t)((k + 1) * 16 * 2),
                               at_b + (uint32_t)((k + 1) * 16 * kStrideB * 2));
#pragma unroll
        for (int j = 0; j < kColumnsOf8; ++j)
#pragma unroll
            for (int i = 0; i < kRowsOf16; ++i) conv_compute::mma(sums[i][j], fa[k % kBuffers][i], fb[k % kBuffers][j]);
        if (kBuffers == 1 && k + 1 < kSteps)
            conv_compute::load(fa[0], fb[0], at_a + (uint32_t)((k + 1) * 16 * 2), at_b + (uint32_t)((k + 1) * 16 * kStrideB * 2));
    }
}
