// c = a * b in single precision on the FP16 tensor cores (wgmma), three products:
//   x = hi + lo, hi = half(x), lo = half(x - hi): 22 bits of every operand in [-1, 1);
//   a * b ~ lo * hi + hi * lo + hi * hi; the product lo * lo is below single precision.
//
// 1. `split` rewrites a and b once into the very image that shared memory needs. An operand is cut into
//    tiles of ROWS rows (rows of a, columns of b) x BK = 32 of depth; a row of a tile has 128 bytes:
//    chunks 0..3 (of 16 bytes, 8 halves) hold the 32 high parts in the order of k, chunks 4..7 the 32 low parts;
//    chunk number q of row i lies at place q ^ (i & 7), which is the 128-byte swizzle of wgmma, K-major.
//    Edges are filled with zeros, so that the product needs no tests on the way in.
// 2. `product`: persistent blocks, clusters of CLUSTER blocks one below the other. One thread fetches with
//    bulk copies (each block its own tile of a and its share of the tile of b, multicast to the cluster) into
//    STAGES stages; two warpgroups, each 64 x BN of the tile, call COMPUTE stage by stage.
//    The tensor cores' sums are cut off, so after every FLUSH of k they are added into c with rounding.
#include <cuda_runtime.h>
#include <cuda_fp16.h>
#include <stdint.h>

// COMPUTE: one stage of one warpgroup (called by all its 128 threads, converged), 64 x BN x 32, three products.
//   sums:  the accumulators of wgmma.m64n{BN}k16, f32 += f16 * f16, in the order of the instruction:
//          sums[4*j + 2*h + e] is row 16*warp + lane/4 + 8*h, column 8*j + 2*(lane%4) + e.
//   a:     address in the shared window (32 bits, multiple of 1024) of 64 rows of 128 bytes as described above.
//   b:     the same of BN rows (row = column of the product, K-major: no transposition).
//   fresh: not 0: the sums start anew: the first wgmma has scale-d = 0 (a predicate), all others 1.
// Descriptors: start address >> 4, stride offset 1024 >> 4, 128-byte swizzle (1 << 62), leading offset unused (1),
//   base offset 0. Step s (s = 0, 1: 16 of k each) lies at + 32*s bytes (high) and at + 64 + 32*s bytes (low).
// It executes wgmma.fence.sync.aligned, for both steps lo*hi, hi*lo, hi*hi (6 wgmma in all, both operands from
//   shared memory, asm volatile with "+f" for each of the sums), then wgmma.commit_group.sync.aligned: exactly one
//   group. It does NOT wait: the sketch does, so that the next stage is issued while this one still runs.
static __device__ __forceinline__ void COMPUTE(float (&sums)[{{BN}} / 2], unsigned a, unsigned b, int fresh);

static constexpr int tile_m = {{BM}};
static constexpr int tile_n = {{BN}};
static constexpr int tile_k = {{BK}};
static constexpr int stages = {{STAGES}};
static constexpr int cluster = {{CLUSTER}};
static constexpr int band = {{BAND}};
static constexpr int span = {{FLUSH}} / {{BK}};          // stages between two transfers into c
static constexpr int groups = tile_m / 64;               // warpgroups that compute
static constexpr int threads = (groups + 1) * 128;       // and one that fetches
static constexpr unsigned row_bytes = 128;               // 32 high and 32 low halves
static constexpr unsigned a_bytes = tile_m * row_bytes;
static constexpr unsigned b_bytes = tile_n * row_bytes;
static constexpr unsigned stage_bytes = a_bytes + b_bytes;
static constexpr unsigned shared_bytes = stages * stage_bytes + 1024 + 2 * stages * 8;

// ---------------------------------------------------------------- splitting and rearranging

static __device__ __forceinline__ void split8(const float (&x)[8], uint4 &high, uint4 &low) {
    unsigned hi[4], lo[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        const __half2 h = __floats2half2_rn(x[2 * i], x[2 * i + 1]);
        const float2 f = __half22float2(h);
        const __half2 l = __floats2half2_rn(x[2 * i] - f.x, x[2 * i + 1] - f.y);
        hi[i] = *reinterpret_cast<const unsigned *>(&h);
        lo[i] = *reinterpret_cast<const unsigned *>(&l);
    }
    high = make_uint4(hi[0], hi[1], hi[2], hi[3]);
    low = make_uint4(lo[0], lo[1], lo[2], lo[3]);
}

// A block of 256 threads rewrites 64 rows x 32 of depth: of a (first a_units blocks) or of b.
static __global__ void __launch_bounds__(256) split(uint4 *to_a, uint4 *to_b, const float *__restrict__ a,
                                                    const float *__restrict__ b, int64_t m, int64_t n, int64_t k,
                                                    int64_t a_units, int64_t b_groups, int64_t blocks_k) {
    __shared__ uint4 image[64 * 8];
    const int tid = threadIdx.x;
    const int64_t unit = blockIdx.x;
    float x[8];
    uint4 high, low;
    if (unit < a_units) {
        const int64_t kb = unit % blocks_k, first = unit / blocks_k * 64;
        const int i = tid >> 2, q = tid & 3;
        const int64_t row = first + i, at = kb * tile_k + q * 8;
        const float *from = a + row * k + at;
        if (row < m && at + 8 <= k && k % 4 == 0 && (reinterpret_cast<uintptr_t>(a) & 15) == 0) {
            const float4 u = __ldg(reinterpret_cast<const float4 *>(from));
            const float4 v = __ldg(reinterpret_cast<const float4 *>(from) + 1);
            x[0] = u.x; x[1] = u.y; x[2] = u.z; x[3] = u.w;
            x[4] = v.x; x[5] = v.y; x[6] = v.z; x[7] = v.w;
        } else {
#pragma unroll
            for (int p = 0; p < 8; ++p) x[p] = row < m && at + p < k ? __ldg(from + p) : 0.0f;
        }
        split8(x, high, low);
        const int64_t tile = first / tile_m, inside = first % tile_m + i;
        uint4 *to = to_a + ((tile * blocks_k + kb) * tile_m + inside) * 8;
        to[q ^ (i & 7)] = high;
        to[(q + 4) ^ (i & 7)] = low;
    } else {
        const int64_t rest = unit - a_units;
        const int64_t first = rest % b_groups * 64, kb = rest / b_groups;
        const int i = tid & 63, q = tid >> 6;
        const int64_t column = first + i, at = kb * tile_k + q * 8;
        const float *from = b + at * n + column;
#pragma unroll
        for (int p = 0; p < 8; ++p) x[p] = column < n && at + p < k ? __ldg(from + p * n) : 0.0f;
        split8(x, high, low);
        image[i * 8 + (q ^ (i & 7))] = high;
        image[i * 8 + ((q + 4) ^ (i & 7))] = low;
        __syncthreads();
        const int64_t tile = first / tile_n, inside = first % tile_n;
        uint4 *to = to_b + ((tile * blocks_k + kb) * tile_n + inside) * 8;
        to[tid] = image[tid];
        to[tid + 256] = image[tid + 256];
    }
}

// ---------------------------------------------------------------- barriers and copies

static __device__ __forceinline__ void barrier_init(unsigned barrier, unsigned count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(count) : "memory");
}

static __device__ __forceinline__ void barrier_expect(unsigned barrier, unsigned bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}

static __device__ __forceinline__ void barrier_wait(unsigned barrier, unsigned parity) {
    unsigned done;
    do {
        asm volatile(
            "{\n"
            ".reg .pred p;\n"
            "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
            "selp.u32 %0, 1, 0, p;\n"
            "}\n"
            : "=r"(done)
            : "r"(barrier), "r"(parity)
            : "memory");
    } while (done == 0);
}

// Arrives at the same barrier in block number `rank` of the cluster.
static __device__ __forceinline__ void barrier_arrive(unsigned barrier, unsigned rank) {
    asm volatile(
        "{\n"
        ".reg .b32 there;\n"
        "mapa.shared::cluster.u32 there, %0, %1;\n"
        "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [there];\n"
        "}\n" ::"r"(barrier), "r"(rank)
        : "memory");
}

static __device__ __forceinline__ void copy_in(unsigned to, const unsigned char *from, unsigned bytes, unsigned barrier) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
                 "l"(__cvta_generic_to_global(from)), "r"(bytes), "r"(barrier)
                 : "memory");
}

static __device__ __forceinline__ void copy_to_all(unsigned to, const unsigned char *from, unsigned bytes, unsigned barrier) {
    const unsigned short mask = (unsigned short)((1u << cluster) - 1u);
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1], %2, [%3], %4;" ::"r"(to),
        "l"(__cvta_generic_to_global(from)), "r"(bytes), "r"(barrier), "h"(mask)
        : "memory");
}

static __device__ __forceinline__ void cluster_sync() {
    asm volatile("barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;" ::: "memory");
}

// ---------------------------------------------------------------- the sums on their way out

// add: c already holds the sum of the earlier part of k, written by this same thread.
template <bool add>
static __device__ __forceinline__ void deliver(float *c, const float (&sums)[tile_n / 2], int64_t row, int64_t column,
                                               int64_t m, int64_t n, bool paired) {
    constexpr int all = tile_n / 8;
    constexpr int batch = all % 16 == 0 ? 16 : 8;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
        const int64_t r = row + 8 * h;
        if (r < m) {
            float *out = c + r * n + column;
            const int64_t left = n - column;             // columns from this thread's first one to the edge
            if (paired) {
#pragma unroll
                for (int g = 0; g < all; g += batch) {
                    float2 v[batch];
#pragma unroll
                    for (int i = 0; i < batch; ++i) {
                        v[i] = make_float2(0.0f, 0.0f);
                        if (add && (g + i) * 8 < left) v[i] = *reinterpret_cast<const float2 *>(out + (g + i) * 8);
                    }
#pragma unroll
                    for (int i = 0; i < batch; ++i) {
                        v[i].x += sums[4 * (g + i) + 2 * h];
                        v[i].y += sums[4 * (g + i) + 2 * h + 1];
                        if ((g + i) * 8 < left) *reinterpret_cast<float2 *>(out + (g + i) * 8) = v[i];
                    }
                }
            } else {
#pragma unroll
                for (int j = 0; j < all; ++j) {
#pragma unroll
                    for (int e = 0; e < 2; ++e) {
                        if (j * 8 + e < left) {
                            const float old = add ? out[j * 8 + e] : 0.0f;
                            out[j * 8 + e] = old + sums[4 * j + 2 * h + e];
                        }
                    }
                }
            }
        }
    }
}

// Tile number t of a cluster: bands of `band` cluster rows, in each of them column after column.
static __device__ __forceinline__ void place(int64_t t, int64_t rows, int64_t columns, int64_t &i, int64_t &j) {
    const int64_t in_band = band * columns;
    const int64_t first = t / in_band * band;
    const int64_t inside = t % in_band;
    const int64_t height = rows - first < band ? rows - first : band;
    i = first + inside % height;
    j = inside / height;
}

// ---------------------------------------------------------------- the product

static __global__ void __cluster_dims__({{CLUSTER}}, 1, 1) __launch_bounds__(threads, 1)
    product(float *c, const unsigned char *__restrict__ a, const unsigned char *__restrict__ b, int64_t m, int64_t n,
            int64_t cluster_rows, int64_t columns, int blocks_k) {
    extern __shared__ unsigned char memory[];
    const unsigned base = ((unsigned)__cvta_generic_to_shared(memory) + 1023u) & ~1023u;
    const unsigned full = base + stages * stage_bytes, empty = full + stages * 8;
    const unsigned rank = cluster == 1 ? 0u : blockIdx.x % cluster;
    const int64_t step = gridDim.x / cluster, tiles = cluster_rows * columns;
    const int group = __shfl_sync(0xffffffffu, (int)threadIdx.x / 128, 0);

    if (threadIdx.x == 0) {
        for (int s = 0; s < stages; ++s) {
            barrier_init(full + 8 * s, 1);
            barrier_init(empty + 8 * s, cluster * groups * 4);   // one arrival for each computing warp of the cluster
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();
    cluster_sync();

    if (group == 0) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
        if (threadIdx.x == 0) {
            int stage = 0;
            unsigned parity = 0;
            constexpr unsigned share = b_bytes / cluster;
            for (int64_t t = blockIdx.x / cluster; t < tiles; t += step) {
                int64_t i, j;
                place(t, cluster_rows, columns, i, j);
                const unsigned char *from_a = a + (i * cluster + rank) * blocks_k * (int64_t)a_bytes;
                const unsigned char *from_b = b + j * blocks_k * (int64_t)b_bytes + rank * share;
                for (int kb = 0; kb < blocks_k; ++kb) {
                    const unsigned to = base + stage * stage_bytes, ready = full + 8 * stage;
                    barrier_wait(empty + 8 * stage, parity ^ 1u);
                    barrier_expect(ready, stage_bytes);
                    copy_in(to, from_a, a_bytes, ready);
                    if (cluster == 1)
                        copy_in(to + a_bytes, from_b, b_bytes, ready);
                    else
                        copy_to_all(to + a_bytes + rank * share, from_b, share, ready);
                    from_a += a_bytes;
                    from_b += b_bytes;
                    if (++stage == stages) {
                        stage = 0;
                        parity ^= 1u;
                    }
                }
            }
        }
        __syncwarp();
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
        const int mine = group - 1, warp = (threadIdx.x / 32) % 4;
        const unsigned lane = threadIdx.x % 32;
        const bool paired = n % 2 == 0 && (reinterpret_cast<uintptr_t>(c) & 7) == 0;
        float sums[tile_n / 2];
#pragma unroll
        for (int x = 0; x < tile_n / 2; ++x) sums[x] = 0.0f;
        int stage = 0, before = 0;
        unsigned parity = 0;
        for (int64_t t = blockIdx.x / cluster; t < tiles; t += step) {
            int64_t i, j;
            place(t, cluster_rows, columns, i, j);
            const int64_t row = (i * cluster + rank) * tile_m + mine * 64 + warp * 16 + lane / 4;
            const int64_t column = j * tile_n + lane % 4 * 2;
            for (int start = 0; start < blocks_k; start += span) {
                const int end = start + span < blocks_k ? start + span : blocks_k;
                for (int kb = start; kb < end; ++kb) {
                    barrier_wait(full + 8 * stage, parity);
                    const unsigned at = base + stage * stage_bytes;
                    COMPUTE(sums, at + mine * 64 * row_bytes, at + a_bytes, kb == start ? 1 : 0);
                    // All but the group just issued are done: the stage before this one may be filled again.
                    asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
                    if (kb > start && lane < cluster) barrier_arrive(empty + 8 * before, lane);
                    before = stage;
                    if (++stage == stages) {
                        stage = 0;
                        parity ^= 1u;
                    }
                }
                asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
#pragma unroll
                for (int x = 0; x < tile_n / 2; ++x) asm volatile("" : "+f"(sums[x])::"memory");
                if (lane < cluster) barrier_arrive(empty + 8 * before, lane);
                if (start == 0)
                    deliver<false>(c, sums, row, column, m, n, paired);
                else
                    deliver<true>(c, sums, row, column, m, n, paired);
                __syncwarp();
            }
        }
    }
    // No block leaves while another one of its cluster may still write or arrive in its shared memory.
    cluster_sync();
}

extern "C" int gemm(float *c, const float *a, const float *b, int64_t m, int64_t n, int64_t k, cudaStream_t stream) {
    if (tile_m != 128 || tile_k != 32 || tile_n % 64 != 0 || tile_n > 256 || stages < 2 || span < 1 ||
        {{FLUSH}} % {{BK}} != 0 || (cluster != 1 && cluster != 2) || shared_bytes > 227u * 1024u)
        return WS_INVALID;
    if (m <= 0 || n <= 0) return 0;

    const int64_t blocks_k = k > 0 ? (k + tile_k - 1) / tile_k : 1;
    const int64_t cluster_rows = (m + tile_m * cluster - 1) / (tile_m * cluster);
    const int64_t columns = (n + tile_n - 1) / tile_n;
    const int64_t size_a = cluster_rows * cluster * blocks_k * (int64_t)a_bytes;
    const int64_t size_b = columns * blocks_k * (int64_t)b_bytes;

    int device = 0, processors = 0;
    cudaError_t error = cudaGetDevice(&device);
    if (error != cudaSuccess) return (int)error;
    error = cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);
    if (error != cudaSuccess) return (int)error;
    error = cudaFuncSetAttribute(product, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared_bytes);
    if (error != cudaSuccess) return (int)error;

    // The pool keeps what is freed, so that the next call does not have to map the memory again.
    cudaMemPool_t pool;
    if (cudaDeviceGetDefaultMemPool(&pool, device) == cudaSuccess) {
        uint64_t keep = UINT64_MAX;
        cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &keep);
    }
    void *work = nullptr;
    error = cudaMallocAsync(&work, (size_t)(size_a + size_b), stream);
    if (error != cudaSuccess) return (int)error;
    unsigned char *packed_a = static_cast<unsigned char *>(work);
    unsigned char *packed_b = packed_a + size_a;

    const int64_t a_units = cluster_rows * cluster * (tile_m / 64) * blocks_k;
    const int64_t b_groups = columns * (tile_n / 64);
    split<<<(unsigned)(a_units + b_groups * blocks_k), 256, 0, stream>>>(
        reinterpret_cast<uint4 *>(packed_a), reinterpret_cast<uint4 *>(packed_b), a, b, m, n, k, a_units, b_groups, blocks_k);
    error = cudaGetLastError();

    if (error == cudaSuccess) {
        int64_t clusters = processors / cluster;
        if (clusters > cluster_rows * columns) clusters = cluster_rows * columns;
        if (clusters < 1) clusters = 1;
        product<<<(unsigned)(clusters * cluster), threads, shared_bytes, stream>>>(c, packed_a, packed_b, m, n, cluster_rows,
                                                                                   columns, (int)blocks_k);
        error = cudaGetLastError();
    }
    const cudaError_t freed = cudaFreeAsync(work, stream);
    return (int)(error != cudaSuccess ? error : freed);
}
