#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <stdint.h>

// The convolution as a matrix product on tensor cores (mma.sync m16n8k16, f16 in, f32 sums), in one launch.
//   M: filters.  N: pixels of one output row.  K: "groups" of 8: a group is (channel, filter row, 8 columns of the filter);
//   columns past the filter's last are zeros in the filter tile.
// A block computes BM filters x BN pixels of one output row, a warp WM x WN of that. K passes in chunks of BK (BK / 8 groups).
//
// Shared memory, in words of two halves (k even in the low half, k + 1 in the high half):
//   filters: word (m, k / 2) at a[m * (BK / 2 + 4) + k / 2]. Rows are 16-byte aligned and shifted by 4 banks: ldmatrix and
//            32-bit reads of fragments have no bank conflicts.
//   image:   word j (0..3: k = 8 * group + 2 * j) of pixel p in `group` at b[group * pitch + p * step + j].
//            step 1 (stride 2): a group is a piece of an image row as it is, and neighbouring pixels overlap: nothing is
//            expanded; pitch = BN + 4. step 4 (any other stride): each pixel has its own 8 halves; pitch = BN * 4.
//
// COMPUTE is called by all lanes of a warp. `a` points to the warp's first filter, `b` to the warp's first pixel. It adds the
// products of one whole chunk (BK / 16 steps of k16, to be unrolled) to the sums; it needs no barrier and writes no memory.
//   sums[i][t][*] is the accumulator fragment of m16n8k16 for filters i * 16 .. i * 16 + 15 and tile t of 8 pixels, whose
//   COLUMNS ARE PERMUTED so that a lane ends with 4 neighbouring pixels:
//       column n of tile t is pixel (t / 2) * 16 + (n / 2) * 4 + (t % 2) * 2 + n % 2 of the warp.
//   With gr = lane / 4, q = lane % 4, k16-step kk, PA = BK / 2 + 4 the fragments are:
//       A: a0 = a[(i * 16 + gr) * PA + kk * 8 + q], a1 = the same 8 rows further, a2 = a0's word + 4, a3 = a1's word + 4
//          (= ldmatrix.x4 of the four 8x8 matrices in this order)
//       B: p = (t / 2) * 16 + (gr / 2) * 4 + (t % 2) * 2 + gr % 2,
//          b0 = b[(2 * kk) * pitch + p * step + q], b1 = b[(2 * kk + 1) * pitch + p * step + q]
//   `pitch` and `step` are constants of the caller: define COMPUTE as __forceinline__.
static __device__ void COMPUTE(float (&sums)[{{WM}} / 16][{{WN}} / 8][4], const uint32_t *a, const uint32_t *b, int pitch, int step);

struct conv_shape {
    int64_t batch;
    int channels, height, width, filters, rows, columns, stride, pad, high, wide;
    int pieces;   // groups for one row of a filter
    int groups;   // channels * rows * pieces
    int depth;    // channels * rows * columns
    int tiles;    // tiles of filters
    int vector;   // rows of y take stores of 8 bytes
};

template <int STEP, bool NARROW>
static __global__ void __launch_bounds__(({{BM}} / {{WM}}) * ({{BN}} / {{WN}}) * 32)
conv_tile(__half *__restrict__ y, const __half *__restrict__ x, const __half *__restrict__ f, const conv_shape z) {
    constexpr int WARPS_M = {{BM}} / {{WM}}, WARPS_N = {{BN}} / {{WN}}, WARPS = WARPS_M * WARPS_N, THREADS = WARPS * 32;
    constexpr int GROUPS = {{BK}} / 8;
    constexpr int WORDS = {{BK}} / 2;                            // words of a filter in a chunk
    constexpr int PA = WORDS + 4;                                // their pitch
    constexpr int PB = STEP == 1 ? {{BN}} + 4 : {{BN}} * 4;      // words of a group of the image
    constexpr int NA = ({{BM}} * WORDS + THREADS - 1) / THREADS; // words of the filter tile a thread moves
    constexpr int PER = (PB + 31) / 32;                          // words of a group a lane moves
    constexpr int ROUNDS = (GROUPS + WARPS - 1) / WARPS;         // groups a warp moves
    constexpr int TOGETHER = STEP == 1 ? ROUNDS : 1;             // groups whose loads are in flight at once

    extern __shared__ uint4 conv_shared[];
    uint32_t *const sa = reinterpret_cast<uint32_t *>(conv_shared);
    uint32_t *const sb = sa + {{BM}} * PA;

    const int thread = threadIdx.x, lane = thread % 32, warp = thread / 32;
    const int warp_m = (warp / WARPS_N) * {{WM}}, warp_n = (warp % WARPS_N) * {{WN}};
    // Tiles of filters lie next to each other in the grid: blocks that run together share pieces of the image.
    const int segment = (int)(blockIdx.x / (unsigned)z.tiles);
    const int first_filter = (int)(blockIdx.x - (unsigned)segment * (unsigned)z.tiles) * {{BM}};
    const int first_pixel = segment * {{BN}};
    const unsigned short *const xs = reinterpret_cast<const unsigned short *>(x);
    const unsigned short *const fs = reinterpret_cast<const unsigned short *>(f) + (int64_t)first_filter * z.depth;
    const int left_filters = z.filters - first_filter;

    bool used = false;  // the tiles in shared memory may still be read by other warps
    for (int64_t image = blockIdx.z; image < z.batch; image += gridDim.z) {
        for (int oy = blockIdx.y; oy < z.high; oy += gridDim.y) {
            float sums[{{WM}} / 16][{{WN}} / 8][4];
#pragma unroll
            for (int i = 0; i < {{WM}} / 16; ++i)
#pragma unroll
                for (int t = 0; t < {{WN}} / 8; ++t)
#pragma unroll
                    for (int e = 0; e < 4; ++e) sums[i][t][e] = 0.0f;

            for (int g0 = 0; g0 < z.groups; g0 += GROUPS) {
                // Filters into registers: all loads are in flight together, a warp reads neighbouring halves.
                uint32_t wa[NA];
#pragma unroll
                for (int i = 0; i < NA; ++i) {
                    const int at = i * THREADS + thread;
                    const int m = at / WORDS, w = at % WORDS;
                    const int g = g0 + w / 4;
                    const int line = NARROW ? g : g / z.pieces;
                    const int s = (NARROW ? 0 : (g - line * z.pieces) * 8) + (w % 4) * 2;
                    const bool good = m < {{BM}} && m < left_filters && g < z.groups;
                    const unsigned short *const from = fs + (int64_t)m * z.depth + (int64_t)line * z.columns + s;
                    uint32_t low = 0, top = 0;
                    if (good && s < z.columns) low = __ldg(from);
                    if (good && s + 1 < z.columns) top = __ldg(from + 1);
                    wa[i] = low | (top << 16);
                }

                // The image: a warp moves whole groups, so the divisions are few. The padding becomes zeros here.
#pragma unroll
                for (int round = 0; round < ROUNDS; round += TOGETHER) {
                    uint32_t wb[TOGETHER][PER];
#pragma unroll
                    for (int k = 0; k < TOGETHER; ++k) {
                        const int local = (round + k) * WARPS + warp;
                        const int g = g0 + local;
                        const unsigned line = NARROW ? (unsigned)g : (unsigned)g / (unsigned)z.pieces;
                        const int s0 = NARROW ? 0 : (g - (int)line * z.pieces) * 8;
                        const unsigned channel = line / (unsigned)z.rows;
                        const int r = (int)(line - channel * (unsigned)z.rows);
                        const int iy = oy * z.stride + r - z.pad;
                        const bool good = local < GROUPS && g < z.groups && iy >= 0 && iy < z.height;
                        const unsigned short *const row =
                            xs + ((image * z.channels + (int64_t)channel) * z.height + iy) * (int64_t)z.width;
#pragma unroll
                        for (int i = 0; i < PER; ++i) {
                            const int w = i * 32 + lane;
                            bool low_in = good && w < PB, top_in = low_in;
                            int ix;
                            if (STEP == 1) {
                                ix = first_pixel * 2 - z.pad + s0 + w * 2;
                            } else {
                                const int s = s0 + (w % 4) * 2;
                                ix = (first_pixel + w / 4) * z.stride - z.pad + s;
                                low_in = low_in && s < z.columns;
                                top_in = top_in && s + 1 < z.columns;
                            }
                            uint32_t low = 0, top = 0;
                            if (low_in && ix >= 0 && ix < z.width) low = __ldg(row + ix);
                            if (top_in && ix + 1 >= 0 && ix + 1 < z.width) top = __ldg(row + ix + 1);
                            wb[k][i] = low | (top << 16);
                        }
                    }
                    if (round == 0 && used) __syncthreads();  // the chunk before has been read by all warps
#pragma unroll
                    for (int k = 0; k < TOGETHER; ++k) {
                        const int local = (round + k) * WARPS + warp;
#pragma unroll
                        for (int i = 0; i < PER; ++i) {
                            const int w = i * 32 + lane;
                            if (local < GROUPS && w < PB) sb[local * PB + w] = wb[k][i];
                        }
                    }
                }
#pragma unroll
                for (int i = 0; i < NA; ++i) {
                    const int at = i * THREADS + thread;
                    const int m = at / WORDS, w = at % WORDS;
                    if (m < {{BM}}) sa[m * PA + w] = wa[i];
                }
                __syncthreads();
                used = true;

                COMPUTE(sums, sa + warp_m * PA, sb + warp_n * STEP, PB, STEP);
            }

            // A lane has 4 neighbouring pixels of a filter, four lanes a whole sector of 32 bytes.
#pragma unroll
            for (int i = 0; i < {{WM}} / 16; ++i)
#pragma unroll
                for (int h = 0; h < 2; ++h) {
                    const int filter = first_filter + warp_m + i * 16 + h * 8 + lane / 4;
                    if (filter < z.filters) {
                        __half *const row = y + ((image * z.filters + filter) * z.high + oy) * (int64_t)z.wide;
#pragma unroll
                        for (int u = 0; u < {{WN}} / 16; ++u) {
                            const int pixel = first_pixel + warp_n + u * 16 + (lane % 4) * 4;
                            const float v0 = sums[i][2 * u][2 * h], v1 = sums[i][2 * u][2 * h + 1];
                            const float v2 = sums[i][2 * u + 1][2 * h], v3 = sums[i][2 * u + 1][2 * h + 1];
                            if (z.vector) {
                                if (pixel < z.wide) {
                                    const __half2 p0 = __floats2half2_rn(v0, v1), p1 = __floats2half2_rn(v2, v3);
                                    uint2 both;
                                    both.x = *reinterpret_cast<const unsigned int *>(&p0);
                                    both.y = *reinterpret_cast<const unsigned int *>(&p1);
                                    *reinterpret_cast<uint2 *>(row + pixel) = both;
                                }
                            } else {
                                if (pixel < z.wide) row[pixel] = __float2half_rn(v0);
                                if (pixel + 1 < z.wide) row[pixel + 1] = __float2half_rn(v1);
                                if (pixel + 2 < z.wide) row[pixel + 2] = __float2half_rn(v2);
                                if (pixel + 3 < z.wide) row[pixel + 3] = __float2half_rn(v3);
                            }
                        }
                    }
                }
        }
    }
}

template <int STEP, bool NARROW>
static int conv_launch(__half *y, const __half *x, const __half *f, const conv_shape &z, dim3 grid, cudaStream_t stream) {
    constexpr int THREADS = ({{BM}} / {{WM}}) * ({{BN}} / {{WN}}) * 32;
    constexpr int PB = STEP == 1 ? {{BN}} + 4 : {{BN}} * 4;
    constexpr int BYTES = ({{BM}} * ({{BK}} / 2 + 4) + ({{BK}} / 8) * PB) * 4;
    if (THREADS > 1024 || BYTES > 227 * 1024) return WS_INVALID;
    if (BYTES > 48 * 1024) {
        const cudaError_t error =
            cudaFuncSetAttribute(conv_tile<STEP, NARROW>, cudaFuncAttributeMaxDynamicSharedMemorySize, BYTES);
        if (error != cudaSuccess) return (int)error;
    }
    conv_tile<STEP, NARROW><<<grid, THREADS, BYTES, stream>>>(y, x, f, z);
    return (int)cudaGetLastError();
}

extern "C" int conv2d(__half* y, const __half* x, const __half* f, int64_t batch, int64_t channels, int64_t height, int64_t width, int64_t filters, int64_t rows, int64_t columns, int64_t stride, int64_t pad, cudaStream_t stream) {
    if ({{BM}} % {{WM}} != 0 || {{BN}} % {{WN}} != 0 || {{WM}} % 16 != 0 || {{WN}} % 16 != 0 || {{BK}} % 16 != 0) return WS_INVALID;
    const int64_t high = (height + 2 * pad - rows) / stride + 1, wide = (width + 2 * pad - columns) / stride + 1;
    if (batch <= 0 || filters <= 0 || high <= 0 || wide <= 0) return 0;

    conv_shape z;
    z.batch = batch;
    z.channels = (int)channels;
    z.height = (int)height;
    z.width = (int)width;
    z.filters = (int)filters;
    z.rows = (int)rows;
    z.columns = (int)columns;
    z.stride = (int)stride;
    z.pad = (int)pad;
    z.high = (int)high;
    z.wide = (int)wide;
    z.pieces = (int)((columns + 7) / 8);
    z.groups = (int)(channels * rows * ((columns + 7) / 8));
    z.depth = (int)(channels * rows * columns);
    z.tiles = (int)((filters + {{BM}} - 1) / {{BM}});
    z.vector = wide % 4 == 0 && reinterpret_cast<uintptr_t>(y) % 8 == 0;

    const int64_t segments = (wide + {{BN}} - 1) / {{BN}};
    const dim3 grid((unsigned)(segments * z.tiles), (unsigned)(high < 65535 ? high : 65535), (unsigned)(batch < 65535 ? batch : 65535));
    const bool narrow = columns <= 8;
    if (stride == 2)
        return narrow ? conv_launch<1, true>(y, x, f, z, grid, stream) : conv_launch<1, false>(y, x, f, z, grid, stream);
    return narrow ? conv_launch<4, true>(y, x, f, z, grid, stream) : conv_launch<4, false>(y, x, f, z, grid, stream);
}
