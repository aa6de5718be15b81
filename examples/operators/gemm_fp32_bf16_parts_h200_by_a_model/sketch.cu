#include <cuda_runtime.h>
#include <cuda_bf16.h>
#include <stdint.h>

// c = a * b by three products of BF16 tensor cores: x = high + low, both BF16, rounded to nearest;
// a * b ~ high * high + high * low + low * high (the residue is about 2^-17 of a product and averages out over a long k).
//
// 1. split: a and b are cut once into parts, and laid down in the order and the swizzle in which the main loop reads them,
//    padded with zeros to whole tiles. One line of a tile is 128 bytes: {{BK}} high parts, then {{BK}} low parts,
//    k running along it, for a row of a or for a column of b (b is transposed on the way).
// 2. multiply: persistent blocks in clusters of {{CM}} along m, which share a tile of b by multicast; one warp asks for
//    the tiles (bulk copies into a ring of {{STAGES}} stages), {{BM}} / 64 warpgroups call COMPUTE.
// Short k, where residues do not average out, and operands with numbers of extreme size (inf, NaN, nearly so, nearly
// denormal) go to ordinary sums in single precision.

// Called by a whole warpgroup (128 threads, converged): sums += A * B', A of 64 rows, B' of {{IN}} columns, {{BK}} deep.
// To be defined __forceinline__ (sums have to stay in registers, and a real call would serialise wgmma).
//   a: shared memory, aligned to 1024 bytes: 64 lines of 128 bytes, one a row. Line r holds 64 BF16: element p < {{BK}} is
//      the high part of A[r][p], element {{BK}} + p the low part. The 16 byte pieces of a line are swizzled as usual
//      (128 byte swizzle): piece q (= bytes 16 q ... 16 q + 15 of the line) lies at r * 128 + ((q ^ (r & 7)) * 16).
//   b: the same with {{IN}} lines, one a column of the output: line j, element p is B[p][j].
//   Both are "K-major, 128 byte swizzle": descriptor = ((address & 0x3ffff) >> 4) | 1 << 16 | 64 << 32 | 1 << 62 (64 bit;
//   stride between groups of 8 lines 1024 bytes); inside a line add to the address 0 and 32 bytes for the two k16 steps of
//   the high parts, 64 and 96 bytes for those of the low parts. No transposition flags.
//   The work: a fresh accumulator d[{{IN}} / 2] (the first wgmma with scale-d = 0), six
//   wgmma.mma_async.sync.aligned.m64n{{IN}}k16.f32.bf16.bf16, the small products first:
//   low * high (a + 64, b + 0), (a + 96, b + 32); high * low (a + 0, b + 64), (a + 32, b + 96);
//   high * high (a + 0, b + 0), (a + 32, b + 32); then commit, wait for all, and sums[i] += d[i] in ordinary additions
//   (that is the second accumulator). When it returns nothing may still read a or b. The other warpgroup keeps the
//   tensor cores busy meanwhile.
//   sums has the order of wgmma's D: with lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4, sums[4 * i + 2 * h + e]
//   is row 16 * warp + lane / 4 + 8 * h, column 8 * i + 2 * (lane % 4) + e.
static __device__ void COMPUTE(float (&sums)[{{IN}} / 2], const unsigned char *a, const unsigned char *b);

namespace sketch {

constexpr int LINE = {{BK}} * 4;                              // bytes of a line: high and low parts
constexpr int CONSUMERS = {{BM}} / 64;                        // warpgroups that compute
constexpr int THREADS = (CONSUMERS + 1) * 128;
constexpr int STRIPS = {{BN}} / {{IN}};
constexpr int LEFT = {{BM}} * LINE;                           // bytes of a tile of a
constexpr int RIGHT = {{BN}} * LINE;                          // bytes of a tile of b
constexpr int SLICE = RIGHT / {{CM}};                         // what one block of a cluster fetches of it
constexpr int STAGE = LEFT + RIGHT;
constexpr int SHARED = {{STAGES}} * STAGE + 1024;
constexpr int64_t SHORT = 1024;                               // below: ordinary sums (accuracy, not speed)

static_assert({{BK}} == 32, "a line is 128 bytes");
static_assert({{BM}} == 128, "registers are dealt out for two computing warpgroups");
static_assert({{BN}} % {{IN}} == 0 && {{BN}} % 64 == 0 && {{IN}} % 8 == 0, "strips of a tile");
static_assert(SLICE % 16 == 0, "bulk copies");

// ---------------------------------------------------------------- ordinary sums, eight rows at a time
static __device__ __forceinline__ void ordinary_rows(float *c, const float *a, const float *b,
                                                     int64_t m, int64_t n, int64_t k) {
    for (int64_t row = (int64_t)blockIdx.x * 8; row < m; row += (int64_t)gridDim.x * 8) {
        for (int64_t column = (int64_t)blockIdx.y * blockDim.x + threadIdx.x; column < n;
             column += (int64_t)gridDim.y * blockDim.x) {
            float sum[8];
            const float *from[8];
#pragma unroll
            for (int i = 0; i < 8; ++i) {
                sum[i] = 0.0f;
                from[i] = a + (row + i < m ? row + i : m - 1) * k;
            }
            for (int64_t p = 0; p < k; ++p) {
                const float right = __ldg(b + p * n + column);
#pragma unroll
                for (int i = 0; i < 8; ++i) sum[i] = fmaf(__ldg(from[i] + p), right, sum[i]);
            }
#pragma unroll
            for (int i = 0; i < 8; ++i)
                if (row + i < m) c[(row + i) * n + column] = sum[i];
        }
    }
}

static __global__ void __launch_bounds__(256) ordinary(float *c, const float *a, const float *b,
                                                       int64_t m, int64_t n, int64_t k) {
    ordinary_rows(c, a, b, m, n, k);
}

// ---------------------------------------------------------------- the split, 64 lines a block
static __global__ void __launch_bounds__(256) split(unsigned char *left, unsigned char *right, unsigned *odd,
                                                    const float *a, const float *b, int64_t m, int64_t n, int64_t k,
                                                    unsigned steps, unsigned left_blocks, unsigned right_groups) {
    __shared__ uint4 lines[64 * 8];
    float x[8];
    unsigned char *to;
    int line, piece;
    if (blockIdx.x < left_blocks) {                           // rows of a; k runs fastest over the blocks
        const unsigned step = blockIdx.x % steps, group = blockIdx.x / steps;
        line = threadIdx.x / 4;
        piece = threadIdx.x % 4;
        const int64_t row = (int64_t)group * 64 + line, at = (int64_t)step * {{BK}} + piece * 8;
        if (row < m && at + 8 <= k && k % 4 == 0 && ((uintptr_t)a & 15) == 0) {
            const float4 *from = reinterpret_cast<const float4 *>(a + row * k + at);
            const float4 u = __ldg(from), v = __ldg(from + 1);
            x[0] = u.x; x[1] = u.y; x[2] = u.z; x[3] = u.w;
            x[4] = v.x; x[5] = v.y; x[6] = v.z; x[7] = v.w;
        } else {
#pragma unroll
            for (int i = 0; i < 8; ++i) x[i] = row < m && at + i < k ? __ldg(a + row * k + at + i) : 0.0f;
        }
        const unsigned first = group * 64u;
        to = left + ((size_t)(first / {{BM}}) * steps + step) * LEFT + (size_t)(first % {{BM}}) * LINE;
    } else {                                                  // columns of b; n runs fastest over the blocks
        const unsigned block = blockIdx.x - left_blocks;
        const unsigned group = block % right_groups, step = block / right_groups;
        line = threadIdx.x % 64;
        piece = threadIdx.x / 64;
        const int64_t column = (int64_t)group * 64 + line, at = (int64_t)step * {{BK}} + piece * 8;
#pragma unroll
        for (int i = 0; i < 8; ++i) x[i] = column < n && at + i < k ? __ldg(b + (at + i) * n + column) : 0.0f;
        const unsigned first = group * 64u;
        to = right + ((size_t)(first / {{BN}}) * steps + step) * RIGHT + (size_t)(first % {{BN}}) * LINE;
    }

    // Anything but zero and 2^-100 <= |x| < 2^50 (inf and NaN among it) is left to ordinary sums.
    bool bad = false;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
        const unsigned bits = __float_as_uint(x[i]);
        bad |= (bits << 1) != 0u && ((bits >> 23) & 255u) - 27u >= 150u;
    }
    if (bad) *odd = 1u;                                       // all writers write the same

    unsigned high[4], low[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        __nv_bfloat162 h = __floats2bfloat162_rn(x[2 * i], x[2 * i + 1]);
        const float2 f = __bfloat1622float2(h);
        __nv_bfloat162 l = __floats2bfloat162_rn(x[2 * i] - f.x, x[2 * i + 1] - f.y);
        high[i] = *reinterpret_cast<unsigned *>(&h);
        low[i] = *reinterpret_cast<unsigned *>(&l);
    }
    lines[line * 8 + (piece ^ (line & 7))] = make_uint4(high[0], high[1], high[2], high[3]);
    lines[line * 8 + ((piece + 4) ^ (line & 7))] = make_uint4(low[0], low[1], low[2], low[3]);
    __syncthreads();
    uint4 *out = reinterpret_cast<uint4 *>(to);
    out[threadIdx.x] = lines[threadIdx.x];
    out[threadIdx.x + 256] = lines[threadIdx.x + 256];
}

// ---------------------------------------------------------------- barriers and copies
static __device__ __forceinline__ unsigned address(const void *p) {
    return (unsigned)__cvta_generic_to_shared(p);
}

static __device__ __forceinline__ void prepare(uint64_t *barrier, unsigned count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(address(barrier)), "r"(count) : "memory");
}

static __device__ __forceinline__ void await(uint64_t *barrier, unsigned parity) {
    unsigned done;
    do {
        asm volatile("{\n\t.reg .pred p;\n\t"
                     "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n\t"
                     "selp.u32 %0, 1, 0, p;\n\t}"
                     : "=r"(done) : "r"(address(barrier)), "r"(parity) : "memory");
    } while (!done);
}

static __device__ __forceinline__ void expect(uint64_t *barrier, unsigned bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(address(barrier)), "r"(bytes) : "memory");
}

static __device__ __forceinline__ void release(uint64_t *barrier, unsigned block) {   // in a block of the cluster
    asm volatile("{\n\t.reg .b32 there;\n\t"
                 "mapa.shared::cluster.u32 there, %0, %1;\n\t"
                 "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [there];\n\t}"
                 ::"r"(address(barrier)), "r"(block) : "memory");
}

static __device__ __forceinline__ void copy(void *to, const void *from, unsigned bytes, uint64_t *barrier) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
                 ::"r"(address(to)), "l"(__cvta_generic_to_global(from)), "r"(bytes), "r"(address(barrier)) : "memory");
}

static __device__ __forceinline__ void copy_to_all(void *to, const void *from, unsigned bytes, uint64_t *barrier) {
    const unsigned short mask = (unsigned short)((1u << {{CM}}) - 1u);
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
                 "[%0], [%1], %2, [%3], %4;"
                 ::"r"(address(to)), "l"(__cvta_generic_to_global(from)), "r"(bytes), "r"(address(barrier)), "h"(mask)
                 : "memory");
}

static __device__ __forceinline__ void meet() {               // all threads of the cluster
    asm volatile("barrier.cluster.arrive.release;\n\tbarrier.cluster.wait.acquire;" ::: "memory");
}

// The walk over the output in bands of {{BAND}} groups of rows (a group: {{CM}} tiles).
static __device__ __forceinline__ void place(unsigned at, unsigned groups, unsigned columns,
                                             unsigned &group, unsigned &column) {
    const unsigned whole = {{BAND}}u * columns, band = at / whole, inside = at - band * whole;
    const unsigned first = band * {{BAND}}u, rest = groups - first;
    const unsigned width = rest < {{BAND}}u ? rest : {{BAND}}u;
    column = inside / width;
    group = first + (inside - column * width);
}

// ---------------------------------------------------------------- the product
static __global__ void __cluster_dims__({{CM}}, 1, 1) __launch_bounds__(THREADS, 1)
multiply(float *c, const float *a, const float *b, const unsigned char *left, const unsigned char *right,
         const unsigned *odd, int64_t m, int64_t n, int64_t k, unsigned steps, unsigned groups, unsigned columns) {
    if (*odd != 0u) {                                         // the same in every block
        ordinary_rows(c, a, b, m, n, k);
        return;
    }

    extern __shared__ unsigned char raw[];
    __shared__ __align__(8) uint64_t full[{{STAGES}}], empty[{{STAGES}}];
    unsigned char *ring = raw + ((1024u - (address(raw) & 1023u)) & 1023u);

    unsigned rank;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    if (threadIdx.x == 0) {
        for (int s = 0; s < {{STAGES}}; ++s) {
            prepare(&full[s], 1);
            prepare(&empty[s], CONSUMERS * 4 * {{CM}});       // one arrival a computing warp of the cluster
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    meet();

    const unsigned work = groups * columns;
    const unsigned cluster = blockIdx.x / {{CM}}, clusters = gridDim.x / {{CM}};
    const int warpgroup = __shfl_sync(0xffffffffu, (int)threadIdx.x / 128, 0);
    const int lane = threadIdx.x % 32;
    unsigned slot = 0, phase = 0;

    if (warpgroup == CONSUMERS) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
        if (threadIdx.x == CONSUMERS * 128) {
            for (unsigned at = cluster; at < work; at += clusters) {
                unsigned group, column;
                place(at, groups, columns, group, column);
                const unsigned char *from_left = left + (size_t)(group * {{CM}}u + rank) * steps * LEFT;
                const unsigned char *from_right = right + (size_t)column * steps * RIGHT + rank * SLICE;
                for (unsigned step = 0; step < steps; ++step) {
                    await(&empty[slot], phase ^ 1u);          // free in every block of the cluster
                    unsigned char *stage = ring + slot * STAGE;
                    expect(&full[slot], STAGE);
                    copy(stage, from_left, LEFT, &full[slot]);
                    if ({{CM}} == 1) copy(stage + LEFT, from_right, RIGHT, &full[slot]);
                    else copy_to_all(stage + LEFT + rank * SLICE, from_right, SLICE, &full[slot]);
                    from_left += LEFT;
                    from_right += RIGHT;
                    if (++slot == {{STAGES}}) {
                        slot = 0;
                        phase ^= 1u;
                    }
                }
            }
        }
        __syncwarp();
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
        const bool pairs = n % 2 == 0 && ((uintptr_t)c & 7) == 0;
        for (unsigned at = cluster; at < work; at += clusters) {
            float sums[STRIPS][{{IN}} / 2];
#pragma unroll
            for (int s = 0; s < STRIPS; ++s)
#pragma unroll
                for (int i = 0; i < {{IN}} / 2; ++i) sums[s][i] = 0.0f;

#pragma unroll 1
            for (unsigned step = 0; step < steps; ++step) {
                await(&full[slot], phase);
                const unsigned char *stage = ring + slot * STAGE;
#pragma unroll
                for (int s = 0; s < STRIPS; ++s)
                    COMPUTE(sums[s], stage + warpgroup * 64 * LINE, stage + LEFT + s * {{IN}} * LINE);
                __syncwarp();
                if (lane < {{CM}}) release(&empty[slot], (unsigned)lane);
                if (++slot == {{STAGES}}) {
                    slot = 0;
                    phase ^= 1u;
                }
            }

            unsigned group, column;
            place(at, groups, columns, group, column);
            const int64_t row = (int64_t)(group * {{CM}}u + rank) * {{BM}} + warpgroup * 64 +
                                (threadIdx.x / 32 % 4) * 16 + lane / 4;
            const int64_t first = (int64_t)column * {{BN}} + 2 * (lane % 4);
#pragma unroll
            for (int h = 0; h < 2; ++h) {
                if (row + 8 * h < m) {
                    float *to = c + (row + 8 * h) * n;
#pragma unroll
                    for (int s = 0; s < STRIPS; ++s) {
#pragma unroll
                        for (int i = 0; i < {{IN}} / 8; ++i) {
                            const int64_t j = first + s * {{IN}} + 8 * i;
                            const float u = sums[s][4 * i + 2 * h], v = sums[s][4 * i + 2 * h + 1];
                            if (pairs) {
                                if (j < n) __stcs(reinterpret_cast<float2 *>(to + j), make_float2(u, v));
                            } else {
                                if (j < n) to[j] = u;
                                if (j + 1 < n) to[j + 1] = v;
                            }
                        }
                    }
                }
            }
        }
    }
    meet();                                                   // nobody leaves while others still arrive at its barriers
}

static int launch_ordinary(float *c, const float *a, const float *b, int64_t m, int64_t n, int64_t k,
                           cudaStream_t stream) {
    const int64_t down = (m + 7) / 8, across = (n + 255) / 256;
    const dim3 grid((unsigned)(down < (1 << 20) ? down : (1 << 20)), (unsigned)(across < 65535 ? across : 65535));
    ordinary<<<grid, 256, 0, stream>>>(c, a, b, m, n, k);
    return (int)cudaGetLastError();
}

}  // namespace sketch

extern "C" int gemm(float *c, const float *a, const float *b, int64_t m, int64_t n, int64_t k, cudaStream_t stream) {
    using namespace sketch;
    if (SHARED + 16 * {{STAGES}} > 232448) return WS_INVALID;
    if (m <= 0 || n <= 0) return 0;
    if (k < SHORT) return launch_ordinary(c, a, b, m, n, k, stream);

    const int64_t steps = (k + {{BK}} - 1) / {{BK}};
    const int64_t groups = (m + {{BM}} * {{CM}} - 1) / ({{BM}} * {{CM}});
    const int64_t columns = (n + {{BN}} - 1) / {{BN}};
    const int64_t left_groups = groups * ({{BM}} * {{CM}} / 64), right_groups = columns * ({{BN}} / 64);
    const int64_t limit = 0x7fffffff / 64;
    if (left_groups >= limit || right_groups >= limit || groups * columns >= 0x40000000 ||
        steps >= 0x7fffffff / (left_groups + right_groups))
        return launch_ordinary(c, a, b, m, n, k, stream);

    const size_t left_bytes = (size_t)(groups * {{CM}} * steps) * LEFT;
    const size_t right_bytes = (size_t)(columns * steps) * RIGHT;
    const size_t bytes = left_bytes + right_bytes + 256;

    int device = 0, processors = 132;
    if (cudaGetDevice(&device) == cudaSuccess) {
        cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);
        // What is freed stays in the stream-ordered pool, so that the next call need not map it again.
        cudaMemPool_t pool;
        uint64_t keep = 0;
        if (cudaDeviceGetMemPool(&pool, device) == cudaSuccess &&
            cudaMemPoolGetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &keep) == cudaSuccess && keep < bytes + (4u << 20)) {
            keep = bytes + (4u << 20);
            cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &keep);
        }
    }

    void *space = nullptr;
    if (cudaMallocAsync(&space, bytes, stream) != cudaSuccess) {
        (void)cudaGetLastError();
        return launch_ordinary(c, a, b, m, n, k, stream);
    }
    unsigned char *left = static_cast<unsigned char *>(space), *right = left + left_bytes;
    unsigned *odd = reinterpret_cast<unsigned *>(right + right_bytes);

    cudaError_t error = cudaMemsetAsync(odd, 0, 256, stream);
    if (error == cudaSuccess)
        error = cudaFuncSetAttribute(multiply, cudaFuncAttributeMaxDynamicSharedMemorySize, SHARED);
    if (error == cudaSuccess) {
        const unsigned left_blocks = (unsigned)(left_groups * steps), right_blocks = (unsigned)(right_groups * steps);
        split<<<left_blocks + right_blocks, 256, 0, stream>>>(left, right, odd, a, b, m, n, k, (unsigned)steps,
                                                              left_blocks, (unsigned)right_groups);
        error = cudaGetLastError();
    }
    if (error == cudaSuccess) {
        const int64_t work = groups * columns;
        int64_t clusters = processors / {{CM}};
        if (clusters > work) clusters = work;
        if (clusters < 1) clusters = 1;
        multiply<<<(unsigned)(clusters * {{CM}}), THREADS, SHARED, stream>>>(
            c, a, b, left, right, odd, m, n, k, (unsigned)steps, (unsigned)groups, (unsigned)columns);
        error = cudaGetLastError();
    }
    const cudaError_t freed = cudaFreeAsync(space, stream);
    return (int)(error != cudaSuccess ? error : freed);
}
