#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <stdint.h>

namespace prim {

// Fragments of B on their way: one 8-byte read each. With 16 warps a block the registers are few and the warps hide more themselves.
constexpr int kRing = {{WN}} * {{WK}} > 8 ? 4 : 8;
// Taps by which the reads of A run ahead.
constexpr int kAhead = {{MT}} == 1 ? 2 : 1;
// Few accumulators: even and odd taps are summed apart, so that the chains of dependent mma are half as long.
constexpr bool kSplit = {{MT}} * {{NT}} <= 4;

static __device__ __forceinline__ unsigned shared_address(const void *p) {
    return (unsigned)__cvta_generic_to_shared(p);
}

static __device__ __forceinline__ void load8(unsigned &lo, unsigned &hi, unsigned address) {
    asm volatile("ld.shared.v2.b32 {%0, %1}, [%2];" : "=r"(lo), "=r"(hi) : "r"(address) : "memory");
}

// Two halves out of two words; the selector is constant once unrolled.
static __device__ __forceinline__ unsigned pick(unsigned a, unsigned b, unsigned selector) {
    unsigned d;
    asm("prmt.b32 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(selector));
    return d;
}

// Halves number i (low) and j (high) of 36 consecutive halves in 18 words.
static __device__ __forceinline__ unsigned pair(const unsigned (&w)[18], const int i, const int j) {
    return pick(w[i >> 1], w[j >> 1], ((i & 1) ? 0x0032u : 0x0010u) | ((j & 1) ? 0x7600u : 0x5400u));
}

static __device__ __forceinline__ void mma16816(float (&d)[4], unsigned a0, unsigned a1, unsigned a2, unsigned a3, unsigned b0,
                                                unsigned b1) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

// Eight bytes number q (0 .. 8) of the 72 of this lane, for both rows of all tiles of filters.
static __device__ __forceinline__ void load_a(unsigned (&w)[{{MT}}][2][18], unsigned base, const int q) {
#pragma unroll
    for (int m = 0; m < {{MT}}; ++m)
#pragma unroll
        for (int h = 0; h < 2; ++h) load8(w[m][h][2 * q], w[m][h][2 * q + 1], base + (unsigned)((m * 16 + h * 8) * 288 + q * 8));
}

// Tap 0 needs the reads 0, 2, 4, 6; each of the taps 1 .. 5 needs one more: 7, 5, 3, 1, 8; the taps 6 .. 8 need no other.
static __device__ __forceinline__ void load_a_of_tap(unsigned (&w)[{{MT}}][2][18], unsigned base, const int tap) {
    if (tap >= 1 && tap <= 4) load_a(w, base, 9 - 2 * tap);
    if (tap == 5) load_a(w, base, 8);
}

}  // namespace prim

static __device__ __forceinline__ void COMPUTE(float (&sums)[{{MT}}][{{NT}}][4], const __half *f, const __half *x,
                                               const int (&at)[{{NT}}], int pitch) {
    constexpr int kAll = 9 * {{NT}};
    const int lane = threadIdx.x & 31;
    const int g = lane >> 2, t = lane & 3;

    // Registers: words of A (72 bytes a row, two rows a tile), a ring of fragments of B, the addresses of the pixels.
    unsigned w[{{MT}}][2][18];
    unsigned b[prim::kRing][2];
    unsigned xb[{{NT}}];
    float odd[{{MT}}][{{NT}}][4];

    const unsigned fb = prim::shared_address(f) + (unsigned)(g * 288 + t * 72);
    const unsigned x0 = prim::shared_address(x) + (unsigned)(t * 8);
#pragma unroll
    for (int n = 0; n < {{NT}}; ++n) xb[n] = x0 + (unsigned)at[n] * 2u;

    if (prim::kSplit) {
#pragma unroll
        for (int m = 0; m < {{MT}}; ++m)
#pragma unroll
            for (int n = 0; n < {{NT}}; ++n)
#pragma unroll
                for (int i = 0; i < 4; ++i) odd[m][n][i] = 0.0f;
    }

    // Fill the pipeline.
    prim::load_a(w, fb, 0);
    prim::load_a(w, fb, 2);
    prim::load_a(w, fb, 4);
    prim::load_a(w, fb, 6);
#pragma unroll
    for (int j = 0; j < prim::kRing; ++j) {
        const int tap = j / {{NT}}, n = j % {{NT}};
        prim::load8(b[j][0], b[j][1], xb[n] + (unsigned)((tap / 3 * pitch + tap % 3) * 32));
    }
#pragma unroll
    for (int tap = 1; tap < prim::kAhead; ++tap) prim::load_a_of_tap(w, fb, tap);

#pragma unroll
    for (int tap = 0; tap < 9; ++tap) {
        prim::load_a_of_tap(w, fb, tap + prim::kAhead);

        unsigned a[{{MT}}][4];
#pragma unroll
        for (int m = 0; m < {{MT}}; ++m) {
            a[m][0] = prim::pair(w[m][0], tap, 9 + tap);
            a[m][1] = prim::pair(w[m][1], tap, 9 + tap);
            a[m][2] = prim::pair(w[m][0], 18 + tap, 27 + tap);
            a[m][3] = prim::pair(w[m][1], 18 + tap, 27 + tap);
        }

#pragma unroll
        for (int n = 0; n < {{NT}}; ++n) {
            const int here = tap * {{NT}} + n;
            const int slot = here % prim::kRing;
#pragma unroll
            for (int m = 0; m < {{MT}}; ++m) {
                if (prim::kSplit && (tap & 1))
                    prim::mma16816(odd[m][n], a[m][0], a[m][1], a[m][2], a[m][3], b[slot][0], b[slot][1]);
                else
                    prim::mma16816(sums[m][n], a[m][0], a[m][1], a[m][2], a[m][3], b[slot][0], b[slot][1]);
            }
            // The place is free: the fragment that follows kRing steps later.
            const int next = here + prim::kRing;
            if (next < kAll) {
                const int tap2 = next / {{NT}}, n2 = next % {{NT}};
                prim::load8(b[slot][0], b[slot][1], xb[n2] + (unsigned)((tap2 / 3 * pitch + tap2 % 3) * 32));
            }
        }
    }

    if (prim::kSplit) {
#pragma unroll
        for (int m = 0; m < {{MT}}; ++m)
#pragma unroll
            for (int n = 0; n < {{NT}}; ++n)
#pragma unroll
                for (int i = 0; i < 4; ++i) sums[m][n][i] += odd[m][n][i];
    }
}
