#include <cuda_runtime.h>
#include <stdint.h>

// COMPUTE: one stage for one consumer warpgroup.
//
// 1. Registers: sums (of the caller), one or two partial sums of {{NW}}/2 registers, fragments of A (hi and lo, 16
//    registers for each 32 of k). B is read by wgmma out of shared memory.
// 2. Load: the fragments of A once by ldmatrix; they serve all parts of {{NW}} columns.
// 3. Compute: wgmma with A in registers. Where two partial sums fit into the registers, the next part's products are
//    under way while the sums of the part before are added.
// 4. Store: ordinary additions into sums.
//
// The two consumer warpgroups are held apart by two named barriers of their 256 threads (never of the whole block):
// the second one begins a stage once the first one has issued about half of it, so that the pauses of one
// fall into the products of the other.

static constexpr int PT_PARTS = {{BN}} / {{NW}};             // parts of {{NW}} columns
static constexpr int PT_GROUPS = {{BK}} / 32;                // groups of 32 of k in a stage
static constexpr int PT_BUFFERS = (PT_PARTS > 1 && {{BN}} / 2 + {{NW}} + 16 <= 208) ? 2 : 1;     // partial sums
static constexpr bool PT_ALL = {{BN}} / 2 + PT_BUFFERS * ({{NW}} / 2) + 16 * PT_GROUPS <= 208;   // all of A at once
static constexpr int PT_ROUNDS = PT_ALL ? 1 : PT_GROUPS;
static constexpr int PT_PER = PT_GROUPS / PT_ROUNDS;         // groups a round
static constexpr int PT_UNITS = PT_ROUNDS * PT_PARTS;
static constexpr int PT_SIGNAL = PT_BUFFERS == 2 ? PT_UNITS / 2 : (PT_UNITS - 1) / 2;

#define PT_4(c, d, i) c(d[(i)]), c(d[(i) + 1]), c(d[(i) + 2]), c(d[(i) + 3])
#define PT_16(c, d, i) PT_4(c, d, (i)), PT_4(c, d, (i) + 4), PT_4(c, d, (i) + 8), PT_4(c, d, (i) + 12)

#if {{NW}} == 128
#define PT_REGISTERS(c, d) PT_16(c, d, 0), PT_16(c, d, 16), PT_16(c, d, 32), PT_16(c, d, 48)
#define PT_TEXT \
    "{\n" \
    ".reg .pred p;\n" \
    "setp.ne.b32 p, %69, 0;\n" \
    "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 " \
    "{%0, %1, %2, %3, %4, %5, %6, %7, " \
    "%8, %9, %10, %11, %12, %13, %14, %15, " \
    "%16, %17, %18, %19, %20, %21, %22, %23, " \
    "%24, %25, %26, %27, %28, %29, %30, %31, " \
    "%32, %33, %34, %35, %36, %37, %38, %39, " \
    "%40, %41, %42, %43, %44, %45, %46, %47, " \
    "%48, %49, %50, %51, %52, %53, %54, %55, " \
    "%56, %57, %58, %59, %60, %61, %62, %63}, " \
    "{%64, %65, %66, %67}, %68, p, 1, 1, 0;\n" \
    "}\n"
#elif {{NW}} == 96
#define PT_REGISTERS(c, d) PT_16(c, d, 0), PT_16(c, d, 16), PT_16(c, d, 32)
#define PT_TEXT \
    "{\n" \
    ".reg .pred p;\n" \
    "setp.ne.b32 p, %53, 0;\n" \
    "wgmma.mma_async.sync.aligned.m64n96k16.f32.bf16.bf16 " \
    "{%0, %1, %2, %3, %4, %5, %6, %7, " \
    "%8, %9, %10, %11, %12, %13, %14, %15, " \
    "%16, %17, %18, %19, %20, %21, %22, %23, " \
    "%24, %25, %26, %27, %28, %29, %30, %31, " \
    "%32, %33, %34, %35, %36, %37, %38, %39, " \
    "%40, %41, %42, %43, %44, %45, %46, %47}, " \
    "{%48, %49, %50, %51}, %52, p, 1, 1, 0;\n" \
    "}\n"
#elif {{NW}} == 64
#define PT_REGISTERS(c, d) PT_16(c, d, 0), PT_16(c, d, 16)
#define PT_TEXT \
    "{\n" \
    ".reg .pred p;\n" \
    "setp.ne.b32 p, %37, 0;\n" \
    "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 " \
    "{%0, %1, %2, %3, %4, %5, %6, %7, " \
    "%8, %9, %10, %11, %12, %13, %14, %15, " \
    "%16, %17, %18, %19, %20, %21, %22, %23, " \
    "%24, %25, %26, %27, %28, %29, %30, %31}, " \
    "{%32, %33, %34, %35}, %36, p, 1, 1, 0;\n" \
    "}\n"
#else
#error "NW must be 64, 96 or 128"
#endif

// d = a * b
static __device__ __forceinline__ void part_first(float (&d)[{{NW}} / 2], const uint32_t (&a)[4], uint64_t b) {
    asm volatile(PT_TEXT
                 : PT_REGISTERS("=f", d)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(0));
}

// d += a * b
static __device__ __forceinline__ void part_next(float (&d)[{{NW}} / 2], const uint32_t (&a)[4], uint64_t b) {
    asm volatile(PT_TEXT
                 : PT_REGISTERS("+f", d)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(1));
}

static __device__ __forceinline__ void part_fence() {
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

static __device__ __forceinline__ void part_commit() {
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

template <int LEFT>
static __device__ __forceinline__ void part_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(LEFT) : "memory");
}

// descriptor: low word = address / 16 and leading offset 1; high word = stride offset 1024 bytes, 128-byte swizzle
static __device__ __forceinline__ uint64_t part_descriptor(uint32_t low) {
    return ((uint64_t)(64u | (1u << 30)) << 32) | (uint64_t)low;
}

static __device__ __forceinline__ void part_load(uint32_t (&f)[4], uint32_t address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(f[0]), "=r"(f[1]), "=r"(f[2]), "=r"(f[3]) : "r"(address) : "memory");
}

// The products of one part of {{NW}} columns over the groups of a round: first the small ones, then hi * hi.
static __device__ __forceinline__ void part_issue(float (&part)[{{NW}} / 2], const uint32_t (&fragments)[PT_PER][4][4], uint32_t b) {
    part_fence();
    #pragma unroll
    for (int g = 0; g < PT_PER; ++g) {
        #pragma unroll
        for (int t = 0; t < 2; ++t) {
            const uint32_t from = b + (uint32_t)(g * ({{BN}} * 8) + 2 * t);
            if (g == 0 && t == 0) part_first(part, fragments[g][2 + t], part_descriptor(from));
            else part_next(part, fragments[g][2 + t], part_descriptor(from));
            part_next(part, fragments[g][t], part_descriptor(from + 4));
        }
    }
    #pragma unroll
    for (int g = 0; g < PT_PER; ++g) {
        #pragma unroll
        for (int t = 0; t < 2; ++t) {
            const uint32_t from = b + (uint32_t)(g * ({{BN}} * 8) + 2 * t);
            part_next(part, fragments[g][t], part_descriptor(from));
        }
    }
    part_commit();
}

static __device__ __forceinline__ void part_add(float (&sum)[{{NW}} / 2], float (&part)[{{NW}} / 2]) {
    // no addition may be moved before the wait
    #pragma unroll
    for (int i = 0; i < {{NW}} / 2; ++i) asm volatile("" : "+f"(part[i])::"memory");
    #pragma unroll
    for (int i = 0; i < {{NW}} / 2; ++i) sum[i] += part[i];
}

// The second warpgroup waits for the first one's signal in the same stage.
static __device__ __forceinline__ void part_follow(uint32_t who) {
    asm volatile(
        "{\n"
        ".reg .pred p;\n"
        "setp.ne.u32 p, %0, 0;\n"
        "@p bar.sync 1, 256;\n"
        "}\n"
        ::"r"(who) : "memory");
}

// Either warpgroup's signal to the other one: barrier 1 from the first, barrier 2 from the second.
static __device__ __forceinline__ void part_signal(uint32_t who) {
    asm volatile("bar.arrive %0, 256;" ::"r"(who + 1u) : "memory");
}

// The first warpgroup does not leave a stage before the second one has taken its signal.
static __device__ __forceinline__ void part_lead(uint32_t who) {
    asm volatile(
        "{\n"
        ".reg .pred p;\n"
        "setp.eq.u32 p, %0, 0;\n"
        "@p bar.sync 2, 256;\n"
        "}\n"
        ::"r"(who) : "memory");
}

static __device__ __forceinline__ void COMPUTE(float (&sums)[{{BN}} / {{NW}}][{{NW}} / 2], const unsigned char *a, const unsigned char *b) {
    const uint32_t who = threadIdx.x / 128u;
    const uint32_t lane = threadIdx.x % 32u, warp = threadIdx.x / 32u % 4u;

    // lane l gives ldmatrix row l % 16 of its warp's 16 rows and chunk l / 16 of a step of k16
    const uint32_t inside = (warp * 16u + lane % 16u) * 128u + (((lane / 16u) ^ (lane % 8u)) * 16u);
    const uint32_t from_a = (uint32_t)__cvta_generic_to_shared(a) + inside;
    const uint32_t from_b = ((uint32_t)__cvta_generic_to_shared(b) >> 4) | (1u << 16);

    float part[PT_BUFFERS][{{NW}} / 2];
    uint32_t fragments[PT_PER][4][4];

    #pragma unroll
    for (int round = 0; round < PT_ROUNDS; ++round) {
        #pragma unroll
        for (int g = 0; g < PT_PER; ++g) {
            const uint32_t group = from_a + (uint32_t)((round * PT_PER + g) * ({{BM}} * 128));
            // the low parts of A are needed first
            part_load(fragments[g][2], group ^ 64u);
            part_load(fragments[g][0], group);
            part_load(fragments[g][3], group ^ 96u);
            part_load(fragments[g][1], group ^ 32u);
        }
        if (round == 0) part_follow(who);

        #pragma unroll
        for (int h = 0; h < PT_PARTS; ++h) {
            part_issue(part[h % PT_BUFFERS], fragments,
                       from_b + (uint32_t)(round * PT_PER * ({{BN}} * 8) + h * ({{NW}} * 8)));
            if (PT_BUFFERS == 2) {
                if (h > 0) part_wait<1>();
                if (round * PT_PARTS + h == PT_SIGNAL) part_signal(who);
                if (h > 0) part_add(sums[h > 0 ? h - 1 : 0], part[(h + 1) % PT_BUFFERS]);
            } else {
                if (round * PT_PARTS + h == PT_SIGNAL) part_signal(who);
                part_wait<0>();
                part_add(sums[h], part[0]);
            }
        }
        if (PT_BUFFERS == 2) {
            part_wait<0>();
            part_add(sums[PT_PARTS - 1], part[(PT_PARTS - 1) % PT_BUFFERS]);
        }
    }
    part_lead(who);
}
