#include <cuda_runtime.h>
#include <stdint.h>

// c = a * b in single precision by three BF16 products on the tensor cores (wgmma), in two launches:
//
// 1. split: every operand x becomes hi = bf16(x), lo = bf16(x - hi), both rounded to nearest. They are written once,
//    as images of the tiles just as they have to lie in shared memory (K-major, 128-byte swizzle, zeros beyond the edges),
//    so that the product moves each tile with one linear bulk copy and needs no tensor maps and no checks of edges.
// 2. product: persistent clusters of {{CLUSTER}} blocks; a block computes {{BM}} x {{BN}}. One producer thread brings tiles
//    through {{STAGES}} stages (A for itself, its part of B to all blocks of the cluster by multicast); each of the
//    {{BM}}/64 consumer warpgroups owns 64 x {{BN}} of the output in registers and calls COMPUTE once a stage.
//
// The image: K is cut into groups of 32. A group of a tile of R rows (R = {{BM}} rows of a, or R = {{BN}} columns of b) is
// R rows of 128 bytes: row r holds hi of k = 0..31 of the group (chunks 0..3 of 16 bytes), then lo of k = 0..31 (chunks
// 4..7). Logical chunk q of row r lies at byte r * 128 + ((q ^ (r & 7)) * 16): the 128-byte swizzle of wgmma.
// A stage holds {{BK}}/32 groups of A after one another (stride {{BM}} * 128 bytes), then {{BK}}/32 groups of B
// (stride {{BN}} * 128 bytes). All of them begin at multiples of 1024 bytes.
//
// Operands that are not finite or exceed 2^56 (where a part or a product of parts might overflow) are noticed by split;
// then product computes the whole of c plainly in single precision instead.

static constexpr int BM = {{BM}}, BN = {{BN}}, BK = {{BK}}, STAGES = {{STAGES}}, CLUSTER = {{CLUSTER}};
static constexpr int CONSUMERS = BM / 64;                    // warpgroups
static constexpr int THREADS = (CONSUMERS + 1) * 128;
static constexpr int STAGE_GROUPS = BK / 32;
static constexpr int A_BYTES = BM * BK * 4, B_BYTES = BN * BK * 4, STAGE_BYTES = A_BYTES + B_BYTES;
static constexpr int POOL_BYTES = STAGES * STAGE_BYTES + 1024;
static_assert(BM == 128, "two consumer warpgroups: the counts of registers rest on it");
static_assert(BK % 32 == 0 && BN % {{NW}} == 0 && BN % 32 == 0, "tiles");
static_assert((B_BYTES / CLUSTER) % 16 == 0, "parts of B");

// One stage for one consumer warpgroup (all its 128 threads call it together, converged): sums += A * B over {{BK}} of k.
// a: shared memory, row 0 of the warpgroup's 64 rows in group 0 of the stage's A; group g is at a + g * {{BM}} * 128.
// b: shared memory, row (= column of c) 0 of group 0 of the stage's B; group g is at b + g * {{BN}} * 128.
// Both K-major with 128-byte swizzle (descriptor: layout type 1 at bit 62, stride offset 1024 bytes); within a row the
// four steps of k16 are 32 bytes apart: hi k0..15, hi k16..31, lo k0..15, lo k16..31.
// sums[h][4 * j + q] is the accumulator fragment of m64n{{NW}} for columns h * {{NW}} ..: register 4 * j + q of the thread is
// row 16 * (warp % 4) + lane / 4 + 8 * (q / 2), column h * {{NW}} + 8 * j + 2 * (lane % 4) + q % 2.
// For each h: a partial sum of {{NW}}/2 registers begins at zero (scale-d = 0 in its first wgmma), takes for every k16
// lo(a) * hi(b), hi(a) * lo(b), hi(a) * hi(b) by wgmma.mma_async.sync.aligned.m64n{{NW}}k16.f32.bf16.bf16, is committed
// and waited for, and is then added to sums[h] by ordinary additions (the tensor cores cut their own sums off). While one
// warpgroup waits and adds, the other one keeps the tensor cores busy. A consumer has 240 registers a thread: sums take
// {{BN}}/2 and the partial sum {{NW}}/2 of them. The fragments of A (hi and lo, 16 registers for each 32 of k) may be
// loaded once by ldmatrix and used as wgmma's operand in registers for every h, which spares shared memory's bandwidth.
// On return no wgmma may be in flight and nothing of the stage may be left to read. To be defined __forceinline__,
// all indices of sums constants after unrolling. No block-wide barrier may stand in it.
static __device__ __forceinline__ void COMPUTE(float (&sums)[{{BN}} / {{NW}}][{{NW}} / 2], const unsigned char *a, const unsigned char *b);

// ---------------------------------------------------------------- split

static __device__ __forceinline__ uint32_t two_bf16(float low, float high) {
    uint32_t bits;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(high), "f"(low));
    return bits;
}

static __device__ __forceinline__ void split_two(float x, float y, uint32_t &hi, uint32_t &lo) {
    hi = two_bf16(x, y);
    lo = two_bf16(x - __uint_as_float(hi << 16), y - __uint_as_float(hi & 0xffff0000u));
}

static __device__ __forceinline__ void split_eight(const float (&x)[8], uint4 &hi, uint4 &lo, bool &wide) {
    #pragma unroll
    for (int i = 0; i < 8; ++i) wide = wide || !(fabsf(x[i]) <= 72057594037927936.0f);
    split_two(x[0], x[1], hi.x, lo.x);
    split_two(x[2], x[3], hi.y, lo.y);
    split_two(x[4], x[5], hi.z, lo.z);
    split_two(x[6], x[7], hi.w, lo.w);
}

// A warp makes 32 rows of one group of an image: 4096 bytes after one another.
static __global__ void __launch_bounds__({{SW}} * 32) split(const float *__restrict__ a, const float *__restrict__ b, int64_t m, int64_t n, int64_t k,
        unsigned char *__restrict__ left, unsigned char *__restrict__ right, int64_t left_chunks, int64_t right_chunks, int64_t groups,
        int vectors, unsigned long long *flag, unsigned long long ticket) {
    __shared__ uint4 images[{{SW}}][256];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    int64_t unit = (int64_t)blockIdx.x * {{SW}} + warp;
    bool wide = false;
    float x[4][8];
    if (unit < left_chunks * groups) {
        // 32 rows of a; four lanes read 128 bytes of a row
        const int64_t chunk = unit / groups, group = unit % groups;
        const int q = lane % 4, r = lane / 4;
        const int64_t p = group * 32 + q * 8;
        #pragma unroll
        for (int i = 0; i < 4; ++i) {
            const int64_t row = chunk * 32 + i * 8 + r;
            const float *from = a + row * k + p;
            if (vectors && row < m && p + 8 <= k) {
                const float4 u = __ldcs((const float4 *)from), v = __ldcs((const float4 *)from + 1);
                x[i][0] = u.x; x[i][1] = u.y; x[i][2] = u.z; x[i][3] = u.w;
                x[i][4] = v.x; x[i][5] = v.y; x[i][6] = v.z; x[i][7] = v.w;
            } else {
                #pragma unroll
                for (int e = 0; e < 8; ++e) {
                    x[i][e] = 0.0f;
                    if (row < m && p + e < k) x[i][e] = from[e];
                }
            }
        }
        const int64_t tile = chunk / (BM / 32), first = chunk % (BM / 32) * 32;
        uint4 *to = (uint4 *)(left + (tile * groups + group) * (BM * 128) + first * 128);
        #pragma unroll
        for (int i = 0; i < 4; ++i) {
            uint4 hi, lo;
            split_eight(x[i], hi, lo, wide);
            uint4 *line = to + (i * 8 + r) * 8;
            line[q ^ r] = hi;
            line[(q + 4) ^ r] = lo;
        }
    } else {
        unit -= left_chunks * groups;
        if (unit < right_chunks * groups) {
            // 32 columns of b, one a lane, which become rows of the image
            const int64_t group = unit / right_chunks, chunk = unit % right_chunks;
            const int64_t column = chunk * 32 + lane, p = group * 32;
            const float *from = b + p * n + column;
            #pragma unroll
            for (int i = 0; i < 32; ++i) {
                x[i / 8][i % 8] = 0.0f;
                if (column < n && p + i < k) x[i / 8][i % 8] = __ldcs(from + (int64_t)i * n);
            }
            uint4 *image = images[warp];
            #pragma unroll
            for (int q = 0; q < 4; ++q) {
                uint4 hi, lo;
                split_eight(x[q], hi, lo, wide);
                image[lane * 8 + (q ^ (lane & 7))] = hi;
                image[lane * 8 + ((q + 4) ^ (lane & 7))] = lo;
            }
            __syncwarp();
            const int64_t tile = chunk / (BN / 32), first = chunk % (BN / 32) * 32;
            uint4 *to = (uint4 *)(right + (tile * groups + group) * (BN * 128) + first * 128);
            #pragma unroll
            for (int i = 0; i < 8; ++i) to[i * 32 + lane] = image[i * 32 + lane];
        }
    }
    if (wide) *flag = ticket;
}

// ---------------------------------------------------------------- barriers and copies

static __device__ __forceinline__ uint32_t shared_address(const void *p) { return (uint32_t)__cvta_generic_to_shared(p); }

static __device__ __forceinline__ void barrier_init(uint32_t barrier, uint32_t count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(count) : "memory");
}

static __device__ __forceinline__ void barrier_expect(uint32_t barrier, uint32_t bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}

static __device__ __forceinline__ void barrier_wait(uint32_t barrier, uint32_t parity) {
    uint32_t done;
    do {
        asm volatile(
            "{\n"
            ".reg .pred p;\n"
            "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
            "selp.u32 %0, 1, 0, p;\n"
            "}\n"
            : "=r"(done) : "r"(barrier), "r"(parity) : "memory");
    } while (!done);
}

// arrives at the barrier at the same place in the block `rank` of the cluster
static __device__ __forceinline__ void barrier_arrive(uint32_t barrier, uint32_t rank) {
    asm volatile(
        "{\n"
        ".reg .b32 remote;\n"
        "mapa.shared::cluster.u32 remote, %0, %1;\n"
        "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [remote];\n"
        "}\n"
        ::"r"(barrier), "r"(rank) : "memory");
}

static __device__ __forceinline__ void cluster_sync() {
    asm volatile("barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;\n" ::: "memory");
}

static __device__ __forceinline__ void copy_own(uint32_t to, const void *from, uint32_t bytes, uint32_t barrier) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
                 ::"r"(to), "l"(from), "r"(bytes), "r"(barrier) : "memory");
}

static __device__ __forceinline__ void copy_all(uint32_t to, const void *from, uint32_t bytes, uint32_t barrier) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1], %2, [%3], %4;"
                 ::"r"(to), "l"(from), "r"(bytes), "r"(barrier), "h"((uint16_t)((1u << CLUSTER) - 1)) : "memory");
}

// ---------------------------------------------------------------- product

// Tiles of a cluster (CLUSTER * BM x BN) in bands of {{GROUP}} rows of tiles, down the columns of a band.
static __device__ __forceinline__ void place(int64_t tile, int64_t tall, int64_t wide, int64_t &row, int64_t &column) {
    const int64_t band = tile / ({{GROUP}} * wide), in = tile % ({{GROUP}} * wide), first = band * {{GROUP}};
    const int64_t height = tall - first < {{GROUP}} ? tall - first : {{GROUP}};
    row = first + in % height;
    column = in / height;
}

static __global__ void __cluster_dims__({{CLUSTER}}, 1, 1) __launch_bounds__(({{BM}} / 64 + 1) * 128, 1)
product(float *__restrict__ c, const float *__restrict__ a, const float *__restrict__ b, int64_t m, int64_t n, int64_t k,
        const unsigned char *__restrict__ left, const unsigned char *__restrict__ right, int64_t tall, int64_t wide, int64_t groups,
        int pairs, const unsigned long long *flag, unsigned long long ticket) {
    extern __shared__ unsigned char pool[];
    __shared__ alignas(8) uint64_t full[{{STAGES}}], empty[{{STAGES}}];

    if (*(const volatile unsigned long long *)flag == ticket) {
        // operands beyond the range that may be split: plainly, one element after another
        const int64_t step = (int64_t)gridDim.x * blockDim.x;
        for (int64_t at = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; at < m * n; at += step) {
            const float *x = a + at / n * k, *y = b + at % n;
            float sum = 0.0f;
            #pragma unroll 4
            for (int64_t p = 0; p < k; ++p) sum = fmaf(x[p], y[p * n], sum);
            c[at] = sum;
        }
        return;
    }

    unsigned char *stages = pool + ((1024u - (shared_address(pool) & 1023u)) & 1023u);
    const int group_of_warps = threadIdx.x / 128;
    const uint32_t rank = CLUSTER == 1 ? 0 : blockIdx.x % CLUSTER;
    const int64_t tiles = tall * wide, steps = groups / STAGE_GROUPS;
    const int64_t first_tile = blockIdx.x / CLUSTER, next_tile = gridDim.x / CLUSTER;

    if (threadIdx.x == 0) {
        for (int s = 0; s < STAGES; ++s) {
            barrier_init(shared_address(&full[s]), 1);
            barrier_init(shared_address(&empty[s]), CLUSTER * CONSUMERS * 4);   // every warp of every consumer of the cluster
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();
    cluster_sync();

    if (group_of_warps == CONSUMERS) {
        // ---- producer
        asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
        if (threadIdx.x == CONSUMERS * 128) {
            int s = 0;
            uint32_t phase = 0;
            for (int64_t tile = first_tile; tile < tiles; tile += next_tile) {
                int64_t row, column;
                place(tile, tall, wide, row, column);
                const unsigned char *from_a = left + (row * CLUSTER + rank) * groups * (BM * 128);
                const unsigned char *from_b = right + column * groups * (BN * 128) + rank * (B_BYTES / CLUSTER);
                for (int64_t step = 0; step < steps; ++step) {
                    const uint32_t to = shared_address(stages + s * STAGE_BYTES), barrier = shared_address(&full[s]);
                    barrier_wait(shared_address(&empty[s]), phase ^ 1);
                    barrier_expect(barrier, STAGE_BYTES);
                    copy_own(to, from_a, A_BYTES, barrier);
                    if (CLUSTER == 1) copy_own(to + A_BYTES, from_b, B_BYTES, barrier);
                    else copy_all(to + A_BYTES + rank * (B_BYTES / CLUSTER), from_b, B_BYTES / CLUSTER, barrier);
                    from_a += A_BYTES;
                    from_b += B_BYTES;
                    if (++s == STAGES) s = 0, phase ^= 1;
                }
            }
        }
        __syncwarp();
    } else {
        // ---- consumers
        asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");
        const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
        int s = 0;
        uint32_t phase = 0;
        for (int64_t tile = first_tile; tile < tiles; tile += next_tile) {
            float sums[{{BN}} / {{NW}}][{{NW}} / 2];
            #pragma unroll
            for (int h = 0; h < {{BN}} / {{NW}}; ++h) {
                #pragma unroll
                for (int i = 0; i < {{NW}} / 2; ++i) sums[h][i] = 0.0f;
            }

            #pragma unroll 1
            for (int64_t step = 0; step < steps; ++step) {
                const unsigned char *stage = stages + s * STAGE_BYTES;
                barrier_wait(shared_address(&full[s]), phase);
                COMPUTE(sums, stage + group_of_warps * (64 * 128), stage + A_BYTES);
                __syncwarp();
                if (lane < CLUSTER) barrier_arrive(shared_address(&empty[s]), (uint32_t)lane);
                if (++s == STAGES) s = 0, phase ^= 1;
            }

            int64_t row, column;
            place(tile, tall, wide, row, column);
            row = (row * CLUSTER + rank) * BM + group_of_warps * 64 + warp * 16 + lane / 4;
            column = column * BN + lane % 4 * 2;
            #pragma unroll
            for (int half = 0; half < 2; ++half) {
                const int64_t line = row + half * 8;
                if (line < m) {
                    float *to = c + line * n + column;
                    #pragma unroll
                    for (int h = 0; h < {{BN}} / {{NW}}; ++h) {
                        #pragma unroll
                        for (int j = 0; j < {{NW}} / 8; ++j) {
                            const int offset = h * {{NW}} + j * 8;
                            const float u = sums[h][4 * j + 2 * half], v = sums[h][4 * j + 2 * half + 1];
                            if (pairs) {
                                if (column + offset < n) __stcs((float2 *)(to + offset), make_float2(u, v));
                            } else {
                                if (column + offset < n) to[offset] = u;
                                if (column + offset + 1 < n) to[offset + 1] = v;
                            }
                        }
                    }
                }
            }
        }
    }
    // no block may leave while others still arrive at its barriers
    cluster_sync();
}

// ---------------------------------------------------------------- entry

extern "C" int gemm(float *c, const float *a, const float *b, int64_t m, int64_t n, int64_t k, cudaStream_t stream) {
    if (POOL_BYTES + 1024 > 232448) return WS_INVALID;
    if (m <= 0 || n <= 0) return 0;
    if (k < 0) k = 0;

    int device = 0, processors = 0;
    cudaError_t error = cudaGetDevice(&device);
    if (error != cudaSuccess) return (int)error;
    error = cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);
    if (error != cudaSuccess) return (int)error;

    // memory that was freed stays in the pool for the next call instead of being unmapped at the next synchronization
    static int prepared = -1;
    if (prepared != device) {
        cudaMemPool_t memory;
        if (cudaDeviceGetDefaultMemPool(&memory, device) == cudaSuccess) {
            uint64_t keep = UINT64_MAX;
            cudaMemPoolSetAttribute(memory, cudaMemPoolAttrReleaseThreshold, &keep);
        }
        error = cudaFuncSetAttribute(product, cudaFuncAttributeMaxDynamicSharedMemorySize, POOL_BYTES);
        if (error != cudaSuccess) return (int)error;
        prepared = device;
    }

    const int64_t tall = (m + (int64_t)BM * CLUSTER - 1) / ((int64_t)BM * CLUSTER);     // tiles of a cluster, down
    const int64_t wide = (n + BN - 1) / BN;                                             // and across
    const int64_t groups = (k + BK - 1) / BK * STAGE_GROUPS;
    const int64_t left_chunks = tall * CLUSTER * (BM / 32), right_chunks = wide * (BN / 32);
    const size_t left_bytes = (size_t)left_chunks * (size_t)groups * 4096, right_bytes = (size_t)right_chunks * (size_t)groups * 4096;
    const int64_t units = (left_chunks + right_chunks) * groups, blocks = (units + {{SW}} - 1) / {{SW}};
    if (blocks > 2147483647ll) return WS_INVALID;

    unsigned char *work = nullptr;
    error = cudaMallocAsync((void **)&work, left_bytes + right_bytes + 256, stream);
    if (error != cudaSuccess) return (int)error;
    unsigned char *left = work, *right = work + left_bytes;
    // The flag is raised by writing this call's ticket, so that it needs no clearing; were its garbage to be the ticket
    // by chance, the plain way would be gone, which is slow and right.
    unsigned long long *flag = (unsigned long long *)(work + left_bytes + right_bytes);
    static unsigned long long calls = 0;
    const unsigned long long ticket = (__atomic_add_fetch(&calls, 1ull, __ATOMIC_RELAXED) * 0x9E3779B97F4A7C15ull) | 1ull;

    if (blocks > 0) {
        const int vectors = k % 4 == 0 && (uintptr_t)a % 16 == 0;
        split<<<(unsigned)blocks, {{SW}} * 32, 0, stream>>>(a, b, m, n, k, left, right, left_chunks, right_chunks, groups, vectors, flag, ticket);
        error = cudaGetLastError();
    }
    if (error == cudaSuccess) {
        int64_t clusters = processors / CLUSTER;
        if (clusters < 1) clusters = 1;
        if (clusters > tall * wide) clusters = tall * wide;
        const int pairs = n % 2 == 0 && (uintptr_t)c % 8 == 0;
        product<<<(unsigned)(clusters * CLUSTER), THREADS, POOL_BYTES, stream>>>(c, a, b, m, n, k, left, right, tall, wide, groups, pairs, flag, ticket);
        error = cudaGetLastError();
    }
    const cudaError_t freed = cudaFreeAsync(work, stream);
    return (int)(error != cudaSuccess ? error : freed);
}
