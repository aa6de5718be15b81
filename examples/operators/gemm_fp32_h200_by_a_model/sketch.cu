#include <cstdint>
#include <cuda_runtime.h>

// COMPUTE: one step of the depth, BK of it, for one thread; both tiles lie in shared memory.
//   for p in [0, BK), i in [0, TM), q in [0, TN / 4), r in [0, 4):
//     sums[i][4 * q + r] += a[i * LM * (BK + 4) + p] * b[p * BN + q * (4 * (32 / LM)) + r]
// - a: the tile of A, row by row (the depth is contiguous), rows BK + 4 floats apart; it already points at the thread's
//   first row. Four steps of the depth of one row are one aligned float4 (16 bytes) at every p divisible by 4; the rows
//   that a warp reads at once lie in different banks.
// - b: the tile of B, row by row, rows BN floats apart; it already points at the thread's first column. Each group q is an
//   aligned float4; the lanes of a warp read neighbouring float4s.
// - Reading ahead is allowed: a at p = BK .. BK + 3 and b's rows BK .. BK + 3 are inside shared memory; what they hold
//   is arbitrary and must not enter the sums.
// - Define it `static __device__ __forceinline__`, so that sums stays in registers. Per four steps of the depth: TM float4
//   of a; per step TN / 4 float4 of b, loaded one step ahead of use. Keep the loop over p rolled in pieces of about 8
//   (whole unrolling of a deep tile overflows the instruction cache), all indices of sums constant. No barriers inside.
static __device__ void COMPUTE(float (&sums)[{{TM}}][{{TN}}], const float *a, const float *b);

namespace gemm_sketch {

constexpr int kBlockM = {{BM}};
constexpr int kBlockN = {{BN}};
constexpr int kBlockK = {{BK}};
constexpr int kLanesM = {{LM}};
constexpr int kLanesN = 32 / {{LM}};
constexpr int kThreads = ({{BM}} / {{TM}}) * ({{BN}} / {{TN}});
constexpr int kWarpM = kLanesM * {{TM}};
constexpr int kWarpN = kLanesN * {{TN}};
constexpr int kWarpsN = kBlockN / kWarpN;
constexpr int kPitchA = kBlockK + 4;  // rows stay on 16 bytes, neighbouring rows start in different banks
constexpr int kSizeA = kBlockM * kPitchA;
constexpr int kSizeB = kBlockK * kBlockN;
constexpr int kFloats = {{STAGES}} * (kSizeA + kSizeB) + 4 * kBlockN;  // the rest lets COMPUTE read ahead
constexpr size_t kBytes = sizeof(float) * (size_t)kFloats;

constexpr int kRegisters = ({{TM}} * {{TN}} > 64) ? 256 : 128;
constexpr int kFit = 65536 / (kThreads * kRegisters);
constexpr int kMinBlocks = kFit < 1 ? 1 : kFit;

// copies of 16 bytes
constexpr int kChunksA = kBlockK / 4;              // in a row of the tile of A
constexpr int kChunksB = kBlockN / 4;              // in a row of the tile of B
constexpr int kStepA = kThreads / kChunksA;        // rows that one pass of the block covers
constexpr int kStepB = kThreads / kChunksB;
constexpr int kPassesA = kBlockM * kChunksA / kThreads;
constexpr int kPassesB = kBlockK * kChunksB / kThreads;

static __device__ __forceinline__ void copy16(float *to, const float *from) {
    const unsigned address = (unsigned)__cvta_generic_to_shared(to);
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::"r"(address), "l"(from) : "memory");
}

static __device__ __forceinline__ void copy4(float *to, const float *from, bool inside) {
    const unsigned address = (unsigned)__cvta_generic_to_shared(to);
    const int size = inside ? 4 : 0;
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(address), "l"(from), "r"(size) : "memory");
}

static __device__ __forceinline__ void commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// Where tile number `tile` lies: bands of BAND rows of tiles, walked column by column.
static __device__ __forceinline__ void place(int64_t tile, int64_t rows, int64_t columns, int64_t &row, int64_t &column) {
    const int64_t band = tile / ({{BAND}} * columns);
    const int64_t first = band * {{BAND}};
    const int64_t height = rows - first < {{BAND}} ? rows - first : {{BAND}};
    const int64_t inside = tile - first * columns;
    row = (first + inside % height) * kBlockM;
    column = (inside / height) * kBlockN;
}

// Zeroes the tiles that several blocks add to.
static __global__ void clear(float *c, int64_t m, int64_t n, int64_t rows, int64_t columns, int64_t whole) {
    int64_t row0, column0;
    place(whole + (int64_t)blockIdx.x, rows, columns, row0, column0);
    for (int e = (int)threadIdx.x; e < kBlockM * kBlockN; e += (int)blockDim.x) {
        const int64_t row = row0 + e / kBlockN, column = column0 + e % kBlockN;
        if (row < m && column < n) c[row * n + column] = 0.0f;
    }
}

// Persistent blocks. The first `whole` tiles are each computed by one block, an equal number by every block; the
// steps of the depth of the other `rest` tiles are shared evenly by all blocks, which add their parts into c.
static __global__ void __launch_bounds__(kThreads, kMinBlocks)
product(float *__restrict__ c, const float *__restrict__ a, const float *__restrict__ b, int64_t m, int64_t n, int64_t k,
        int64_t rows, int64_t columns, int64_t whole, int64_t rest, int full) {
    extern __shared__ __align__(128) float gemm_storage[];
    float *const tiles_a = gemm_storage;
    float *const tiles_b = gemm_storage + {{STAGES}} * kSizeA;

    const int thread = (int)threadIdx.x, warp = thread / 32, lane = thread % 32;
    const int my_row = (warp / kWarpsN) * kWarpM + lane / kLanesN;
    const int my_column = (warp % kWarpsN) * kWarpN + (lane % kLanesN) * 4;
    const int row_a = thread / kChunksA, chunk_a = (thread % kChunksA) * 4;
    const int row_b = thread / kChunksB, chunk_b = (thread % kChunksB) * 4;
    const int64_t stride_a = (int64_t)kStepA * k, stride_b = (int64_t)kStepB * n, advance_b = (int64_t)kBlockK * n;

    const int64_t steps = (k + kBlockK - 1) / kBlockK;
    int64_t unit = rest * steps * (int64_t)blockIdx.x / (int64_t)gridDim.x;
    const int64_t unit_end = rest * steps * ((int64_t)blockIdx.x + 1) / (int64_t)gridDim.x;
    int64_t next_tile = blockIdx.x;

    for (;;) {
        // The next piece of work: steps [first, first + count) of the depth of one tile.
        int64_t tile, first, count;
        if (unit < unit_end) {
            tile = whole + unit / steps;
            first = unit % steps;
            count = steps - first < unit_end - unit ? steps - first : unit_end - unit;
            unit += count;
        } else if (next_tile < whole) {
            tile = next_tile;
            first = 0;
            count = steps;
            next_tile += gridDim.x;
        } else {
            break;
        }
        const bool partial = count < steps;
        int64_t row0, column0;
        place(tile, rows, columns, row0, column0);

        const float *from_a = a + (row0 + row_a) * k + first * kBlockK + chunk_a;
        const float *from_b = b + (first * kBlockK + row_b) * n + column0 + chunk_b;
        int64_t at = first * kBlockK;

        // Starts the copies of the next step of the depth into the given slot.
        auto load = [&](int slot) {
            float *const to_a = tiles_a + slot * kSizeA;
            float *const to_b = tiles_b + slot * kSizeB;
            if (full) {
#pragma unroll
                for (int i = 0; i < kPassesA; ++i)
                    copy16(to_a + (row_a + i * kStepA) * kPitchA + chunk_a, from_a + i * stride_a);
#pragma unroll
                for (int i = 0; i < kPassesB; ++i)
                    copy16(to_b + (row_b + i * kStepB) * kBlockN + chunk_b, from_b + i * stride_b);
                from_a += kBlockK;
                from_b += advance_b;
            } else {
#pragma unroll 1
                for (int e = thread; e < kBlockM * kBlockK; e += kThreads) {
                    const int r = e / kBlockK, p = e % kBlockK;
                    const bool inside = row0 + r < m && at + p < k;
                    copy4(to_a + r * kPitchA + p, inside ? a + (row0 + r) * k + at + p : a, inside);
                }
#pragma unroll 1
                for (int e = thread; e < kBlockK * kBlockN; e += kThreads) {
                    const int p = e / kBlockN, q = e % kBlockN;
                    const bool inside = at + p < k && column0 + q < n;
                    copy4(to_b + p * kBlockN + q, inside ? b + (at + p) * n + column0 + q : b, inside);
                }
                at += kBlockK;
            }
        };

        float sums[{{TM}}][{{TN}}];
#pragma unroll
        for (int i = 0; i < {{TM}}; ++i) {
#pragma unroll
            for (int j = 0; j < {{TN}}; ++j) sums[i][j] = 0.0f;
        }

        int to_load = (int)count, write_slot = 0, read_slot = 0;
#pragma unroll 1
        for (int s = 0; s < {{STAGES}} - 1; ++s) {
            if (to_load > 0) {
                load(write_slot);
                --to_load;
            }
            commit();
            ++write_slot;
        }

#pragma unroll 1
        for (int step = 0; step < (int)count; ++step) {
            asm volatile("cp.async.wait_group %0;" ::"n"({{STAGES}} - 2) : "memory");
            __syncthreads();  // this step's tiles have come, and everyone has left the slot that is filled next
            if (to_load > 0) {
                load(write_slot);
                --to_load;
            }
            commit();
            write_slot = write_slot + 1 == {{STAGES}} ? 0 : write_slot + 1;

            COMPUTE(sums, tiles_a + read_slot * kSizeA + my_row * kPitchA, tiles_b + read_slot * kSizeB + my_column);
            read_slot = read_slot + 1 == {{STAGES}} ? 0 : read_slot + 1;
        }
        asm volatile("cp.async.wait_all;" ::: "memory");
        __syncthreads();  // the slots are free for the next piece

        const int64_t out_row = row0 + my_row, out_column = column0 + my_column;
        float *const out = c + out_row * n + out_column;
        if (full) {
            if (partial) {
#pragma unroll
                for (int i = 0; i < {{TM}}; ++i) {
                    float *const line = out + (int64_t)(i * kLanesM) * n;
#pragma unroll
                    for (int q = 0; q < {{TN}} / 4; ++q)
                        atomicAdd(reinterpret_cast<float4 *>(line + q * 4 * kLanesN),
                                  make_float4(sums[i][4 * q], sums[i][4 * q + 1], sums[i][4 * q + 2], sums[i][4 * q + 3]));
                }
            } else {
#pragma unroll
                for (int i = 0; i < {{TM}}; ++i) {
                    float *const line = out + (int64_t)(i * kLanesM) * n;
#pragma unroll
                    for (int q = 0; q < {{TN}} / 4; ++q)
                        *reinterpret_cast<float4 *>(line + q * 4 * kLanesN) =
                            make_float4(sums[i][4 * q], sums[i][4 * q + 1], sums[i][4 * q + 2], sums[i][4 * q + 3]);
                }
            }
        } else {
#pragma unroll
            for (int i = 0; i < {{TM}}; ++i) {
#pragma unroll
                for (int j = 0; j < {{TN}}; ++j) {
                    const int across = (j / 4) * 4 * kLanesN + j % 4;
                    if (out_row + i * kLanesM < m && out_column + across < n) {
                        float *const to = out + (int64_t)(i * kLanesM) * n + across;
                        if (partial)
                            atomicAdd(to, sums[i][j]);
                        else
                            *to = sums[i][j];
                    }
                }
            }
        }
    }
}

}  // namespace gemm_sketch

extern "C" int gemm(float *c, const float *a, const float *b, int64_t m, int64_t n, int64_t k, cudaStream_t stream) {
    using namespace gemm_sketch;
    if (m <= 0 || n <= 0) return 0;
    if (kBytes > (size_t)227 * 1024 || kThreads > 1024 || kThreads % 32 != 0 || kPassesA < 1 || kPassesB < 1 ||
        kPassesA * kStepA != kBlockM || kPassesB * kStepB != kBlockK || kBlockM % kWarpM != 0 || kBlockN % kWarpN != 0)
        return WS_INVALID;

    cudaError_t error =
        cudaFuncSetAttribute(product, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)kBytes);
    if (error != cudaSuccess) return (int)error;
    error = cudaFuncSetAttribute(product, cudaFuncAttributePreferredSharedMemoryCarveout, 100);
    if (error != cudaSuccess) return (int)error;
    int device = 0, multiprocessors = 0, resident = 0;
    error = cudaGetDevice(&device);
    if (error != cudaSuccess) return (int)error;
    error = cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device);
    if (error != cudaSuccess) return (int)error;
    error = cudaOccupancyMaxActiveBlocksPerMultiprocessor(&resident, product, kThreads, kBytes);
    if (error != cudaSuccess) return (int)error;
    if (resident < 1) return WS_INVALID;

    const int64_t slots = (int64_t)multiprocessors * resident;
    const int64_t rows = (m + kBlockM - 1) / kBlockM, columns = (n + kBlockN - 1) / kBlockN;
    const int64_t tiles = rows * columns, steps = (k + kBlockK - 1) / kBlockK;
    const int64_t most = {{SPLIT}} ? tiles * (steps > 0 ? steps : 1) : tiles;
    const int64_t grid = slots < most ? slots : most;
    const int64_t rest = {{SPLIT}} ? tiles % grid : 0;
    const int64_t whole = tiles - rest;

    const uintptr_t addresses =
        reinterpret_cast<uintptr_t>(a) | reinterpret_cast<uintptr_t>(b) | reinterpret_cast<uintptr_t>(c);
    const int full =
        (m % kBlockM == 0 && n % kBlockN == 0 && k % kBlockK == 0 && addresses % 16 == 0) ? 1 : 0;

    if (rest > 0) {
        clear<<<(unsigned)rest, 512, 0, stream>>>(c, m, n, rows, columns, whole);
        error = cudaGetLastError();
        if (error != cudaSuccess) return (int)error;
    }
    product<<<(unsigned)grid, kThreads, kBytes, stream>>>(c, a, b, m, n, k, rows, columns, whole, rest, full);
    return (int)cudaGetLastError();
}
