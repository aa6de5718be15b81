#include <stdint.h>

// Address in the shared window, as ld.shared and ldmatrix take it.
static __device__ __forceinline__ uint32_t prim_shared_address(const uint32_t *p) {
    uint32_t address;
    asm volatile("{ .reg .u64 wide; cvta.to.shared.u64 wide, %1; cvt.u32.u64 %0, wide; }" : "=r"(address) : "l"(p));
    return address;
}

// Four 8x8 matrices of halves: a whole A fragment of m16n8k16.
static __device__ __forceinline__ void prim_load_a(uint32_t (&v)[4], uint32_t address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3])
                 : "r"(address)
                 : "memory");
}

static __device__ __forceinline__ uint32_t prim_load_b(uint32_t address) {
    uint32_t v;
    asm volatile("ld.shared.u32 %0, [%1];" : "=r"(v) : "r"(address) : "memory");
    return v;
}

static __device__ __forceinline__ void prim_mma(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// All fragments of one k16-step: WM / 16 ldmatrix.x4 and WN / 4 loads of a word.
static __device__ __forceinline__ void prim_load_step(uint32_t (&fa)[{{WM}} / 16][4], uint32_t (&fb)[{{WN}} / 8][2],
                                                      uint32_t a_lane, uint32_t b_lane, int kk, int pitch, int step) {
    constexpr int PA = {{BK}} / 2 + 4;
#pragma unroll
    for (int i = 0; i < {{WM}} / 16; ++i)
        prim_load_a(fa[i], a_lane + (uint32_t)((i * 16 * PA + kk * 8) * 4));
#pragma unroll
    for (int t = 0; t < {{WN}} / 8; ++t) {
        const int pixel = (t / 2) * 16 + (t % 2) * 2;
        fb[t][0] = prim_load_b(b_lane + (uint32_t)(((2 * kk) * pitch + pixel * step) * 4));
        fb[t][1] = prim_load_b(b_lane + (uint32_t)(((2 * kk + 1) * pitch + pixel * step) * 4));
    }
}

static __device__ __forceinline__ void COMPUTE(float (&sums)[{{WM}} / 16][{{WN}} / 8][4], const uint32_t *a, const uint32_t *b,
                                               int pitch, int step) {
    constexpr int PA = {{BK}} / 2 + 4;
    constexpr int STEPS = {{BK}} / 16;
    constexpr int FRAGMENTS = {{WM}} / 4 + {{WN}} / 4;  // registers of the fragments of one step
    constexpr int WANTED = FRAGMENTS <= 16 ? 3 : 2;     // small warp tiles look two steps ahead, large ones one
    constexpr int STAGES = WANTED < STEPS ? WANTED : STEPS;

    const int lane = (int)(threadIdx.x & 31u);
    const int gr = lane >> 2, q = lane & 3;

    // ldmatrix: lanes 0..15 name rows 0..15 at words 0..3, lanes 16..31 the same rows at words 4..7.
    const uint32_t a_lane = prim_shared_address(a) + (uint32_t)(((lane & 15) * PA + (lane >> 4) * 4) * 4);
    const uint32_t b_lane = prim_shared_address(b) + (uint32_t)((((gr >> 1) * 4 + (gr & 1)) * step + q) * 4);

    uint32_t fa[STAGES][{{WM}} / 16][4];
    uint32_t fb[STAGES][{{WN}} / 8][2];

#pragma unroll
    for (int s = 0; s < STAGES - 1; ++s) prim_load_step(fa[s], fb[s], a_lane, b_lane, s, pitch, step);

#pragma unroll
    for (int kk = 0; kk < STEPS; ++kk) {
        constexpr int AHEAD = STAGES - 1;
        if (kk + AHEAD < STEPS)
            prim_load_step(fa[(kk + AHEAD) % STAGES], fb[(kk + AHEAD) % STAGES], a_lane, b_lane, kk + AHEAD, pitch, step);
#pragma unroll
        for (int t = 0; t < {{WN}} / 8; ++t)
#pragma unroll
            for (int i = 0; i < {{WM}} / 16; ++i) prim_mma(sums[i][t], fa[kk % STAGES][i], fb[kk % STAGES][t]);
    }
}
