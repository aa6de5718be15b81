#include <cuda.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <stdint.h>

// Tiling:     a cluster of {{CLUSTER}} blocks computes {{CLUSTER}} tiles of {{BM}} x {{BN}}, one above the other; each group
//             of four warps that computes holds 64 x {{BN}} sums in registers; k advances in steps of 64 through a ring of
//             {{STAGES}} stages in shared memory. One more group of warps only starts the copies (TMA).
// Reordering: as many blocks as multiprocessors, each walks over its tiles; the tiles lie in bands of {{BAND}} rows of
//             clusters, so that the blocks that run at one time share rows of A and columns of B in the second-level
//             cache. The blocks of a cluster share their columns of B: each fetches its part and sends it to all.
// Layout:     TMA writes rows of 128 bytes with the swizzle of 128 bytes, as wgmma reads them. B stays row by row and is
//             read transposed. The results are exchanged within four lanes, so that each writes 16 bytes.

// COMPUTE: sums (+)= A' * B' for one stage: A' is 64 x 64 (m x k), B' is 64 x {{BN}} (k x n). Called by all 128 threads of a
// warpgroup together. It ISSUES EXACTLY FOUR instructions and nothing that waits, for s = 0, 1, 2, 3 (k = 16 s .. 16 s + 15):
//     wgmma.mma_async.sync.aligned.m64n{{BN}}k16.f32.f16.f16 {sums[0], ..., sums[{{BN}}/2-1]}, descA, descB, p, 1, 1, 0, 1;
// (scale-a 1, scale-b 1, trans-a 0, trans-b 1), all sums as "+f" operands in order of their index, asm volatile.
// Predicate p (scale-d): for s = 0 it is (accumulate != 0), because the sums hold garbage when accumulate is 0; for
// s > 0 it is true. The caller does wgmma.fence before, and wgmma.commit_group and wgmma.wait_group after the call: COMPUTE
// must contain NO fence, NO commit_group, NO wait_group, no barrier, and must not touch the sums in any other way.
//   a: address in shared memory (32 bits), a multiple of 1024. A' row by row, 128 bytes a row, K-major, swizzle of 128 bytes.
//      descA = ((a + 32 * s) & 0x3FFFF) >> 4 | 1ull << 16 | (1024ull >> 4) << 32 | 1ull << 62
//   b: address in shared memory (32 bits), a multiple of 1024. {{BN}} / 64 panels of 64 columns, 8192 bytes each; in a panel
//      one row of k is 128 bytes (64 columns), 64 rows of k; N-major ("transposed"), swizzle of 128 bytes.
//      descB = ((b + 2048 * s) & 0x3FFFF) >> 4 | (8192ull >> 4) << 16 | (1024ull >> 4) << 32 | 1ull << 62
//      (leading offset: from panel to panel; stride offset: from 8 rows of k to the next 8.)
// Define it as `static __device__ __forceinline__ void COMPUTE(...)`: the sums must stay in registers.
static __device__ void COMPUTE(float (&sums)[{{BN}} / 2], unsigned a, unsigned b, int accumulate);

namespace sketch {

constexpr int BM = {{BM}};
constexpr int BN = {{BN}};
constexpr int STAGES = {{STAGES}};
constexpr int CLUSTER = {{CLUSTER}};
constexpr int BAND = {{BAND}};

constexpr int BK = 64;                                  // 128 bytes: the width of the swizzle
constexpr int GROUPS = BM / 64;                         // warpgroups that compute
constexpr int THREADS = 128 * (GROUPS + 1);             // and one that copies
constexpr unsigned A_BYTES = BM * BK * 2;
constexpr unsigned B_BYTES = BK * BN * 2;
constexpr unsigned STAGE_BYTES = A_BYTES + B_BYTES;
constexpr unsigned PANEL_BYTES = BK * 128;              // 64 columns of B
constexpr int PANELS = BN / 64;
constexpr int SHARE = PANELS / CLUSTER;                 // panels of B that each block of the cluster fetches
constexpr unsigned SHARED = STAGES * STAGE_BYTES + 1024;
constexpr bool VALID = BM % 64 == 0 && BM >= 64 && BM <= 256 && BN % 64 == 0 && BN <= 256 && PANELS % CLUSTER == 0 &&
                       STAGES >= 2 && BAND >= 1 && SHARED + 16 * STAGES <= 232448u;

static __device__ __forceinline__ unsigned address(const void *p) {
    return (unsigned)__cvta_generic_to_shared(p);
}

static __device__ __forceinline__ unsigned cluster_rank() {
    unsigned rank;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}

static __device__ __forceinline__ void cluster_sync() {
    asm volatile("barrier.cluster.arrive.release;" ::: "memory");
    asm volatile("barrier.cluster.wait.acquire;" ::: "memory");
}

static __device__ __forceinline__ void barrier_init(unsigned bar, unsigned count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(bar), "r"(count) : "memory");
}

static __device__ __forceinline__ void barrier_expect(unsigned bar, unsigned bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(bar), "r"(bytes) : "memory");
}

static __device__ __forceinline__ void barrier_wait(unsigned bar, unsigned parity) {
    unsigned done;
    do {
        asm volatile(
            "{\n"
            ".reg .pred ready;\n"
            "mbarrier.try_wait.parity.shared::cta.b64 ready, [%1], %2;\n"
            "selp.u32 %0, 1, 0, ready;\n"
            "}\n"
            : "=r"(done)
            : "r"(bar), "r"(parity)
            : "memory");
    } while (!done);
}

// Arrives at the same barrier of block `rank` of the cluster.
static __device__ __forceinline__ void barrier_arrive(unsigned bar, unsigned rank) {
    asm volatile(
        "{\n"
        ".reg .b32 there;\n"
        "mapa.shared::cluster.u32 there, %0, %1;\n"
        "mbarrier.arrive.shared::cluster.b64 _, [there];\n"
        "}\n" ::"r"(bar), "r"(rank)
        : "memory");
}

static __device__ __forceinline__ void load(unsigned to, const CUtensorMap *map, int x, int y, unsigned bar) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(to),
        "l"((unsigned long long)map), "r"(x), "r"(y), "r"(bar)
        : "memory");
}

static __device__ __forceinline__ void load_for_all(unsigned to, const CUtensorMap *map, int x, int y, unsigned bar) {
    const unsigned short mask = (unsigned short)((1u << CLUSTER) - 1u);
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
        "[%0], [%1, {%2, %3}], [%4], %5;" ::"r"(to),
        "l"((unsigned long long)map), "r"(x), "r"(y), "r"(bar), "h"(mask)
        : "memory");
}

static __device__ __forceinline__ void mma_fence() {
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

static __device__ __forceinline__ void mma_commit() {
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

template <int N>
static __device__ __forceinline__ void mma_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
}

static __device__ __forceinline__ unsigned pack(float low, float high) {
    const __half2 both = __floats2half2_rn(low, high);
    return *reinterpret_cast<const unsigned *>(&both);
}

// Unit -> row of clusters and column of tiles: bands of BAND rows, walked column by column.
static __device__ __forceinline__ void place(int unit, int unit_rows, int unit_columns, int &row, int &column) {
    const int per_band = BAND * unit_columns;
    const int band = unit / per_band, within = unit - band * per_band;
    const int first = band * BAND;
    const int height = min(BAND, unit_rows - first);
    column = within / height;
    row = first + within - column * height;
}

// 64 x BN sums of a warpgroup to C. A lane holds two neighbouring columns of each 8; four lanes exchange their
// words, then each of them has 8 neighbouring columns, 16 bytes, and the four write 64 bytes of one row.
static __device__ __forceinline__ void store(const float (&sums)[BN / 2], __half *c, int m, int n, int row, int column, int warp,
                                             int lane) {
    const int quad = lane & 3;
    const bool odd = (quad & 1) != 0, upper = (quad & 2) != 0;
    const int top = row + 16 * warp + (lane >> 2);
    const int left = column + 8 * quad;
    __half *const first = c + (int64_t)top * n + left;
    __half *const second = first + (int64_t)8 * n;
    const bool first_in = top < m, second_in = top + 8 < m;
#pragma unroll
    for (int j = 0; j < BN / 8; j += 4) {
        const bool inside = left + 8 * j < n;
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            unsigned w0 = pack(sums[4 * (j + 0) + 2 * half], sums[4 * (j + 0) + 2 * half + 1]);
            unsigned w1 = pack(sums[4 * (j + 1) + 2 * half], sums[4 * (j + 1) + 2 * half + 1]);
            unsigned w2 = pack(sums[4 * (j + 2) + 2 * half], sums[4 * (j + 2) + 2 * half + 1]);
            unsigned w3 = pack(sums[4 * (j + 3) + 2 * half], sums[4 * (j + 3) + 2 * half + 1]);
            const unsigned r0 = __shfl_xor_sync(0xffffffffu, odd ? w0 : w1, 1);
            const unsigned r1 = __shfl_xor_sync(0xffffffffu, odd ? w2 : w3, 1);
            w0 = odd ? r0 : w0;
            w1 = odd ? w1 : r0;
            w2 = odd ? r1 : w2;
            w3 = odd ? w3 : r1;
            const unsigned r2 = __shfl_xor_sync(0xffffffffu, upper ? w0 : w2, 2);
            const unsigned r3 = __shfl_xor_sync(0xffffffffu, upper ? w1 : w3, 2);
            w0 = upper ? r2 : w0;
            w2 = upper ? w2 : r2;
            w1 = upper ? r3 : w1;
            w3 = upper ? w3 : r3;
            if (inside && (half ? second_in : first_in))
                __stcs(reinterpret_cast<uint4 *>((half ? second : first) + 8 * j), make_uint4(w0, w1, w2, w3));
        }
    }
}

static __global__ void __cluster_dims__({{CLUSTER}}, 1, 1) __launch_bounds__(THREADS, 1)
    product(const __grid_constant__ CUtensorMap a, const __grid_constant__ CUtensorMap b, __half *c, int m, int n, int steps,
            int unit_rows, int unit_columns) {
    extern __shared__ unsigned char memory[];
    __shared__ __align__(8) unsigned long long full_barriers[STAGES];
    __shared__ __align__(8) unsigned long long empty_barriers[STAGES];

    const unsigned stages = (address(memory) + 1023u) & ~1023u;
    const unsigned full = address(full_barriers), empty = address(empty_barriers);
    const int group = __shfl_sync(0xffffffffu, (int)threadIdx.x / 128, 0);
    const int warp = __shfl_sync(0xffffffffu, ((int)threadIdx.x / 32) & 3, 0);
    const int lane = threadIdx.x & 31;
    const int rank = CLUSTER > 1 ? (int)cluster_rank() : 0;
    const int units = unit_rows * unit_columns;
    const int first_unit = blockIdx.x / CLUSTER, clusters = gridDim.x / CLUSTER;

    if (threadIdx.x == 0) {
        asm volatile("prefetch.tensormap [%0];" ::"l"((unsigned long long)&a) : "memory");
        asm volatile("prefetch.tensormap [%0];" ::"l"((unsigned long long)&b) : "memory");
        for (int s = 0; s < STAGES; ++s) {
            barrier_init(full + 8 * s, 1);
            barrier_init(empty + 8 * s, GROUPS * 4 * CLUSTER);  // every warp that computes, of every block of the cluster
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    cluster_sync();

    if (group == 0) {
        // The group that copies: one thread of it.
        if constexpr (GROUPS == 2) asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
        if (warp == 0 && lane == 0) {
            int stage = 0;
            unsigned phase = 0;
            for (int unit = first_unit; unit < units; unit += clusters) {
                int row, column;
                place(unit, unit_rows, unit_columns, row, column);
                row = (row * CLUSTER + rank) * BM;
                column = column * BN;
                for (int step = 0; step < steps; ++step) {
                    const unsigned ready = full + 8 * stage;
                    const unsigned left = stages + stage * STAGE_BYTES, right = left + A_BYTES;
                    barrier_wait(empty + 8 * stage, phase ^ 1u);
                    barrier_expect(ready, STAGE_BYTES);
                    load(left, &a, step * BK, row, ready);
#pragma unroll
                    for (int p = 0; p < SHARE; ++p) {
                        const int panel = rank * SHARE + p;
                        if constexpr (CLUSTER > 1)
                            load_for_all(right + panel * PANEL_BYTES, &b, column + panel * 64, step * BK, ready);
                        else
                            load(right + panel * PANEL_BYTES, &b, column + panel * 64, step * BK, ready);
                    }
                    if (++stage == STAGES) {
                        stage = 0;
                        phase ^= 1u;
                    }
                }
            }
        }
        __syncwarp();
        cluster_sync();  // no block leaves while another may still signal to it
    } else {
        // The groups that compute: 64 rows each.
        if constexpr (GROUPS == 2) asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
        const int part = group - 1;
        int stage = 0;
        unsigned phase = 0;
        for (int unit = first_unit; unit < units; unit += clusters) {
            float sums[BN / 2];
            int previous = 0;
            for (int step = 0; step < steps; ++step) {
                const unsigned left = stages + stage * STAGE_BYTES, right = left + A_BYTES;
                barrier_wait(full + 8 * stage, phase);
                mma_fence();
                COMPUTE(sums, left + part * (64 * 128), right, step != 0);
                mma_commit();
                mma_wait<1>();  // the step before is done: its stage is free
                if (step != 0 && lane < CLUSTER) barrier_arrive(empty + 8 * previous, lane);
                previous = stage;
                if (++stage == STAGES) {
                    stage = 0;
                    phase ^= 1u;
                }
            }
            mma_wait<0>();
#pragma unroll
            for (int i = 0; i < BN / 2; ++i) asm volatile("" : "+f"(sums[i])::"memory");
            if (lane < CLUSTER) barrier_arrive(empty + 8 * previous, lane);

            int row, column;
            place(unit, unit_rows, unit_columns, row, column);
            store(sums, c, m, n, (row * CLUSTER + rank) * BM + part * 64, column * BN, warp, lane);
        }
        __syncwarp();
        cluster_sync();
    }
}

// For what TMA cannot address (rows that are no multiple of 16 bytes, pointers that are not aligned) and for k = 0.
static __global__ void plain(__half *c, const __half *a, const __half *b, int64_t m, int64_t n, int64_t k) {
    __shared__ float left[16][17], right[16][17];
    const int64_t rows = (m + 15) / 16, columns = (n + 15) / 16;
    for (int64_t tile = blockIdx.x; tile < rows * columns; tile += gridDim.x) {
        const int64_t row = tile / columns * 16 + threadIdx.y, column = tile % columns * 16 + threadIdx.x;
        float sum = 0.0f;
        for (int64_t at = 0; at < k; at += 16) {
            left[threadIdx.y][threadIdx.x] = row < m && at + threadIdx.x < k ? __half2float(a[row * k + at + threadIdx.x]) : 0.0f;
            right[threadIdx.y][threadIdx.x] =
                at + threadIdx.y < k && column < n ? __half2float(b[(at + threadIdx.y) * n + column]) : 0.0f;
            __syncthreads();
            for (int p = 0; p < 16; ++p) sum += left[threadIdx.y][p] * right[p][threadIdx.x];
            __syncthreads();
        }
        if (row < m && column < n) c[row * n + column] = __float2half_rn(sum);
    }
}

typedef decltype(&cuTensorMapEncodeTiled) Encode;

// A row-by-row matrix of `outer` rows and `inner` columns, fetched in boxes of `box_rows` x 64.
static bool describe(Encode encode, CUtensorMap *map, const __half *base, int64_t inner, int64_t outer, unsigned box_rows) {
    const cuuint64_t size[2] = {(cuuint64_t)inner, (cuuint64_t)outer};
    const cuuint64_t stride[1] = {(cuuint64_t)inner * 2};
    const cuuint32_t box[2] = {64, box_rows};
    const cuuint32_t one[2] = {1, 1};
    return encode(map, CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 2, const_cast<__half *>(base), size, stride, box, one,
                  CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                  CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

}  // namespace sketch

extern "C" int gemm(__half *c, const __half *a, const __half *b, int64_t m, int64_t n, int64_t k, cudaStream_t stream) {
    using namespace sketch;
    if (!VALID) return WS_INVALID;
    if (m <= 0 || n <= 0) return 0;

    // What does not change from call to call is asked once for a device.
    static int known = -1, processors = 0;
    static Encode encode = nullptr;
    int device = 0;
    cudaError_t error = cudaGetDevice(&device);
    if (error != cudaSuccess) return (int)error;
    if (device != known) {
        error = cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);
        if (error != cudaSuccess) return (int)error;
        error = cudaFuncSetAttribute(product, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)SHARED);
        if (error != cudaSuccess) return (int)error;
        void *entry = nullptr;
        cudaDriverEntryPointQueryResult found;
        error = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &entry, 12000, cudaEnableDefault, &found);
        if (error != cudaSuccess) return (int)error;
        encode = found == cudaDriverEntryPointSuccess ? reinterpret_cast<Encode>(entry) : nullptr;
        known = device;
    }

    const int64_t limit = (int64_t)1 << 30;
    const int64_t unit_rows = (m + (int64_t)BM * CLUSTER - 1) / ((int64_t)BM * CLUSTER);
    const int64_t unit_columns = (n + BN - 1) / BN;
    bool fast = encode != nullptr && k > 0 && k % 8 == 0 && n % 8 == 0 && m < limit && n < limit && k < limit &&
                unit_rows * unit_columns < limit && BAND * unit_columns < limit &&
                (((uintptr_t)a | (uintptr_t)b | (uintptr_t)c) & 15) == 0;
    CUtensorMap map_a, map_b;
    fast = fast && describe(encode, &map_a, a, k, m, (unsigned)BM) && describe(encode, &map_b, b, n, k, (unsigned)BK);
    if (!fast) {
        const int64_t tiles = ((m + 15) / 16) * ((n + 15) / 16);
        const int64_t most = (int64_t)1 << 30;
        plain<<<(unsigned)(tiles < most ? tiles : most), dim3(16, 16), 0, stream>>>(c, a, b, m, n, k);
        return (int)cudaGetLastError();
    }

    const int64_t units = unit_rows * unit_columns;
    int64_t clusters = processors / CLUSTER;
    if (clusters < 1) clusters = 1;
    if (clusters > units) clusters = units;
    product<<<(unsigned)(clusters * CLUSTER), THREADS, SHARED, stream>>>(map_a, map_b, c, (int)m, (int)n, (int)((k + BK - 1) / BK),
                                                                        (int)unit_rows, (int)unit_columns);
    return (int)cudaGetLastError();
}
