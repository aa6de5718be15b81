#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <stdint.h>

// Implicit matrix product of filters (M) by pixels (N), summed over channels and taps (K), in one launch without workspace.
//
// Tiling.     A block makes 16*MT filters x (TH x TW) output pixels. The channels are divided among WK groups of WN warps: a group
//             owns 16 channels (one k16 of the tensor cores) at a time, with all nine taps, and its own slabs of f and x in shared
//             memory, so that groups never wait for each other before the final sum over the groups.
//             1x128x28x28: 8 filter blocks x 14 tiles of 2 x 28 = 112 blocks in one wave, each group one single step.
// Reordering. The tap is the inner loop: the slab of x is loaded once and read at nine shifted places (no im2col).
// Layout.     f slab: [16*MT filters][16 channels * 9 taps], as in global memory (288 bytes a row: rows shift the banks by 8 words).
//             x slab: [input pixel][16 channels], transposed in registers on the way (32 bytes a pixel: 4 pixels fill all banks).
//
// COMPUTE is called by all 32 lanes of a warp. It adds one step of 16 channels, all nine taps, to the warp's sums:
//   for each m < MT, n < NT, tap r, s < 3 and channel c < 16:
//     D[m][n](row, column) += f[(m * 16 + row) * 144 + c * 9 + r * 3 + s] * x[pixel(n, column) + (r * pitch + s) * 16 + c]
//   f, x:   the slabs in shared memory (16-byte aligned, the same for all lanes).
//   at[n]:  of this lane: the offset in halves, a multiple of 16, of pixel(n, column = lane / 4), tap (0, 0). That is the only pixel of
//           tile n that this lane must read, for its B fragment. pitch: pixels from a row of x to the next (constant once inlined).
//   sums[m][n][0..3]: accumulators of mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32: with g = lane / 4, t = lane % 4:
//           (row g, column 2t), (g, 2t + 1), (g + 8, 2t), (g + 8, 2t + 1).
//   Intended: channels may stand in any order along k if A and B agree. Let lane t of a quad own channels 4t .. 4t + 3
//   (k = 2t, 2t+1 are channels 4t, 4t+1; k = 2t+8, 2t+9 are channels 4t+2, 4t+3). Then
//     B: b0, b1 of tile n, tap (r, s) are one 8-byte read at x + at[n] + (r * pitch + s) * 16 + 4 * t  (no bank conflicts);
//     A: rows m*16 + g and m*16 + g + 8: 36 consecutive halves each, at f + row * 144 + 36 * t, are nine 8-byte reads
//        (no bank conflicts); half number c*9 + tap is channel 4t + c. For a tap, a0 / a2 = halves {tap, 9 + tap} / {18 + tap, 27 + tap}
//        of row g, a1 / a3 the same of row g + 8: one __byte_perm each with constant selectors, all loops unrolled, in registers.
//   No synchronisation and no writing to shared memory inside COMPUTE.
static __device__ void COMPUTE(float (&sums)[{{MT}}][{{NT}}][4], const __half *f, const __half *x, const int (&at)[{{NT}}], int pitch);

namespace sk {

constexpr int kBM = 16 * {{MT}};                             // filters of a block
constexpr int kPixels = {{TH}} * {{TW}};                     // output pixels of a block
constexpr int kSlots = {{WN}} * {{NT}} * 8;                  // columns of the tensor cores, at least kPixels
constexpr int kGroup = 32 * {{WN}};                          // threads of a group
constexpr int kThreads = kGroup * {{WK}};
constexpr int kHigh = {{TH}} + 2;                            // input rows of a tile
constexpr int kChunks = ({{TW}} + 8) / 4;                    // aligned chunks of four input columns: TW + 2 and up to 3 in front
constexpr int kPitch = 4 * kChunks;
constexpr int kTasks = kHigh * kChunks * 4;                  // chunk x four channels
constexpr int kTurns = (kTasks + kGroup - 1) / kGroup;
constexpr int kFBytes = kBM * 288;
constexpr int kXBytes = kHigh * kPitch * 32;
constexpr int kSumPitch = kSlots % 16 == 8 ? kSlots : kSlots + 8;  // 8 or 24 modulo 32 banks
constexpr int kSumBytes = kBM * kSumPitch * 4;
constexpr int kSlab = kFBytes + kXBytes > kSumBytes ? kFBytes + kXBytes : kSumBytes;
constexpr int kShared = kSlab * {{WK}};

static __device__ __forceinline__ void meet(int group) {
    if ({{WN}} == 1)
        __syncwarp();
    else
        asm volatile("bar.sync %0, %1;" ::"r"(group + 1), "n"(kGroup) : "memory");
}

template <bool ALIGNED>
static __global__ void __launch_bounds__(kThreads)
tile3x3(__half *__restrict__ y, const __half *__restrict__ x, const __half *__restrict__ f, int channels, int height, int width,
        int filters, int pad, int high, int wide, int tiles_w, int y_vector) {
    extern __shared__ __align__(128) unsigned char sk_shared[];
    const int lane = threadIdx.x & 31;
    const int warp = threadIdx.x >> 5;
    const int group = warp / {{WN}}, part = warp % {{WN}};
    const int member = part * 32 + lane;                     // thread within its group

    int image = blockIdx.z, tile_x = 0;
    if (tiles_w > 1) {
        image = blockIdx.z / tiles_w;
        tile_x = blockIdx.z - image * tiles_w;
    }
    const int f0 = blockIdx.x * kBM;
    const int oy0 = blockIdx.y * {{TH}}, ox0 = tile_x * {{TW}};
    const int iy0 = oy0 - pad;
    const int first = (ox0 - pad) & ~3;                      // rounded down to a chunk, also below zero
    const int shift = (ox0 - pad) & 3;
    const int64_t plane = (int64_t)height * width;
    const __half *xi = x + (int64_t)image * channels * plane;

    unsigned char *slab = sk_shared + group * kSlab;
    __half *fs = reinterpret_cast<__half *>(slab);
    __half *xs = reinterpret_cast<__half *>(slab + kFBytes);

    int at[{{NT}}];
#pragma unroll
    for (int n = 0; n < {{NT}}; ++n) {
        const int p = (part * {{NT}} + n) * 8 + (lane >> 2);
        at[n] = p < kPixels ? ((p / {{TW}}) * kPitch + p % {{TW}} + shift) * 16 : 0;
    }
    float sums[{{MT}}][{{NT}}][4];
#pragma unroll
    for (int m = 0; m < {{MT}}; ++m)
#pragma unroll
        for (int n = 0; n < {{NT}}; ++n)
#pragma unroll
            for (int i = 0; i < 4; ++i) sums[m][n][i] = 0.0f;

    for (int c0 = group * 16; c0 < channels; c0 += 16 * {{WK}}) {
        // The filters: a row of the slab is 144 consecutive halves of global memory.
        const int left = (channels - c0) * 9;                // halves of a row that exist
        if (ALIGNED) {
#pragma unroll
            for (int i = 0; i < (kBM * 18 + kGroup - 1) / kGroup; ++i) {
                const int task = member + i * kGroup;
                if (kBM * 18 % kGroup == 0 || task < kBM * 18) {
                    const int row = task / 18, piece = task % 18;
                    const bool live = f0 + row < filters && piece * 8 < left;
                    const __half *from = live ? f + ((int64_t)(f0 + row) * channels + c0) * 9 + piece * 8 : f;
                    const unsigned to = (unsigned)__cvta_generic_to_shared(fs + row * 144 + piece * 8);
                    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(live ? 16 : 0) : "memory");
                }
            }
            asm volatile("cp.async.commit_group;" ::: "memory");
        } else {
            for (int task = member; task < kBM * 144; task += kGroup) {
                const int row = task / 144, k = task % 144;
                __half value = __ushort_as_half(0);
                if (f0 + row < filters && k < left) value = f[((int64_t)(f0 + row) * channels + c0) * 9 + k];
                fs[task] = value;
            }
        }

        // The image: a task is four columns of four channels; all loads go out before the first is used.
        uint2 raw[kTurns][4];
#pragma unroll
        for (int i = 0; i < kTurns; ++i) {
            const int task = member + i * kGroup;
            const int quad = task & 3, cell = task >> 2;
            const int iy = iy0 + cell / kChunks, ix = first + cell % kChunks * 4;
            const bool live = task < kTasks && iy >= 0 && iy < height;
            const int64_t place = (int64_t)(c0 + quad * 4) * plane + (int64_t)iy * width + ix;
#pragma unroll
            for (int k = 0; k < 4; ++k) {
                const bool there = live && c0 + quad * 4 + k < channels;
                raw[i][k] = make_uint2(0u, 0u);
                if (ALIGNED) {
                    if (there && ix >= 0 && ix < width) raw[i][k] = __ldg(reinterpret_cast<const uint2 *>(xi + place + k * plane));
                } else {
                    unsigned h[4];
#pragma unroll
                    for (int e = 0; e < 4; ++e) {
                        h[e] = 0u;
                        if (there && ix + e >= 0 && ix + e < width)
                            h[e] = __ldg(reinterpret_cast<const unsigned short *>(xi + place + k * plane + e));
                    }
                    raw[i][k] = make_uint2(h[0] | h[1] << 16, h[2] | h[3] << 16);
                }
            }
        }
#pragma unroll
        for (int i = 0; i < kTurns; ++i) {
            const int task = member + i * kGroup;
            const int quad = task & 3, cell = task >> 2, turn = cell & 3;
            uint2 px[4];                                     // four channels of one pixel
            px[0] = make_uint2(__byte_perm(raw[i][0].x, raw[i][1].x, 0x5410), __byte_perm(raw[i][2].x, raw[i][3].x, 0x5410));
            px[1] = make_uint2(__byte_perm(raw[i][0].x, raw[i][1].x, 0x7632), __byte_perm(raw[i][2].x, raw[i][3].x, 0x7632));
            px[2] = make_uint2(__byte_perm(raw[i][0].y, raw[i][1].y, 0x5410), __byte_perm(raw[i][2].y, raw[i][3].y, 0x5410));
            px[3] = make_uint2(__byte_perm(raw[i][0].y, raw[i][1].y, 0x7632), __byte_perm(raw[i][2].y, raw[i][3].y, 0x7632));
            // Rotate, so that neighbouring chunks write pixels that differ modulo four: different banks.
            if (turn & 1) {
                const uint2 kept = px[0];
                px[0] = px[1];
                px[1] = px[2];
                px[2] = px[3];
                px[3] = kept;
            }
            if (turn & 2) {
                const uint2 a = px[0], b = px[1];
                px[0] = px[2];
                px[1] = px[3];
                px[2] = a;
                px[3] = b;
            }
            if (task < kTasks) {
#pragma unroll
                for (int e = 0; e < 4; ++e)
                    *reinterpret_cast<uint2 *>(xs + (cell * 4 + ((e + turn) & 3)) * 16 + quad * 4) = px[e];
            }
        }
        if (ALIGNED) asm volatile("cp.async.wait_all;" ::: "memory");
        meet(group);
        COMPUTE(sums, fs, xs, at, kPitch);
        meet(group);                                         // the slabs may be written again
    }

    // Each group leaves its sums in its own slab, then all threads add the groups and write y.
    {
        float *mine = reinterpret_cast<float *>(slab);
#pragma unroll
        for (int m = 0; m < {{MT}}; ++m)
#pragma unroll
            for (int n = 0; n < {{NT}}; ++n) {
                float *to = mine + (m * 16 + (lane >> 2)) * kSumPitch + (part * {{NT}} + n) * 8 + (lane & 3) * 2;
                *reinterpret_cast<float2 *>(to) = make_float2(sums[m][n][0], sums[m][n][1]);
                *reinterpret_cast<float2 *>(to + 8 * kSumPitch) = make_float2(sums[m][n][2], sums[m][n][3]);
            }
    }
    __syncthreads();
    constexpr int quads = kSlots / 4;
    for (int task = threadIdx.x; task < kBM * quads; task += kThreads) {
        const int row = task / quads, p = task % quads * 4;
        const int filter = f0 + row;
        if (filter >= filters || p >= kPixels) continue;
        const unsigned char *from = sk_shared + (row * kSumPitch + p) * 4;
        float4 v[{{WK}}];
#pragma unroll
        for (int k = 0; k < {{WK}}; ++k) v[k] = *reinterpret_cast<const float4 *>(from + k * kSlab);
        float4 sum = v[0];
#pragma unroll
        for (int k = 1; k < {{WK}}; ++k) {
            sum.x += v[k].x;
            sum.y += v[k].y;
            sum.z += v[k].z;
            sum.w += v[k].w;
        }
        __half *to = y + ((int64_t)image * filters + filter) * ((int64_t)high * wide);
        if ({{TW}} % 4 == 0 && y_vector) {                   // four pixels of one row, all inside or all outside
            const int oy = oy0 + p / {{TW}}, ox = ox0 + p % {{TW}};
            if (oy < high && ox < wide) {
                const __half2 low = __floats2half2_rn(sum.x, sum.y), top = __floats2half2_rn(sum.z, sum.w);
                uint2 packed;
                packed.x = *reinterpret_cast<const unsigned *>(&low);
                packed.y = *reinterpret_cast<const unsigned *>(&top);
                *reinterpret_cast<uint2 *>(to + (int64_t)oy * wide + ox) = packed;
            }
        } else {
            const float each[4] = {sum.x, sum.y, sum.z, sum.w};
#pragma unroll
            for (int e = 0; e < 4; ++e) {
                const int oy = oy0 + (p + e) / {{TW}}, ox = ox0 + (p + e) % {{TW}};
                if (p + e < kPixels && oy < high && ox < wide) to[(int64_t)oy * wide + ox] = __float2half_rn(each[e]);
            }
        }
    }
}

// Any other filter or stride: one output element a thread.
static __global__ void __launch_bounds__(256)
direct(__half *__restrict__ y, const __half *__restrict__ x, const __half *__restrict__ f, int64_t all, int64_t channels, int64_t height,
       int64_t width, int64_t filters, int64_t rows, int64_t columns, int64_t stride, int64_t pad, int64_t high, int64_t wide) {
    for (int64_t at = blockIdx.x * 256ll + threadIdx.x; at < all; at += gridDim.x * 256ll) {
        const int64_t ox = at % wide, oy = at / wide % high, filter = at / wide / high % filters, image = at / wide / high / filters;
        const int64_t iy0 = oy * stride - pad, ix0 = ox * stride - pad;
        const int64_t r0 = iy0 < 0 ? -iy0 : 0, s0 = ix0 < 0 ? -ix0 : 0;
        const int64_t r1 = height - iy0 < rows ? height - iy0 : rows, s1 = width - ix0 < columns ? width - ix0 : columns;
        float sum = 0.0f;
        for (int64_t c = 0; c < channels; ++c) {
            const __half *xc = x + (image * channels + c) * height * width;
            const __half *fc = f + (filter * channels + c) * rows * columns;
            for (int64_t r = r0; r < r1; ++r)
                for (int64_t s = s0; s < s1; ++s)
                    sum = fmaf(__half2float(xc[(iy0 + r) * width + ix0 + s]), __half2float(fc[r * columns + s]), sum);
        }
        y[at] = __float2half_rn(sum);
    }
}

template <bool ALIGNED>
static int start(dim3 grid, cudaStream_t stream, __half *y, const __half *x, const __half *f, int channels, int height, int width,
                 int filters, int pad, int high, int wide, int tiles_w, int y_vector) {
    static const cudaError_t ready = cudaFuncSetAttribute(tile3x3<ALIGNED>, cudaFuncAttributeMaxDynamicSharedMemorySize, kShared);
    if (ready != cudaSuccess) return (int)ready;
    tile3x3<ALIGNED><<<grid, kThreads, kShared, stream>>>(y, x, f, channels, height, width, filters, pad, high, wide, tiles_w, y_vector);
    return (int)cudaGetLastError();
}

}  // namespace sk

extern "C" int conv2d(__half* y, const __half* x, const __half* f, int64_t batch, int64_t channels, int64_t height, int64_t width, int64_t filters, int64_t rows, int64_t columns, int64_t stride, int64_t pad, cudaStream_t stream) {
    if (sk::kPixels > sk::kSlots || sk::kThreads > 1024 || sk::kShared > 227 * 1024 || ({{WN}} > 1 && {{WK}} > 15)) return WS_INVALID;
    const int64_t high = (height + 2 * pad - rows) / stride + 1, wide = (width + 2 * pad - columns) / stride + 1;
    if (batch <= 0 || filters <= 0 || high <= 0 || wide <= 0) return 0;

    const int64_t most = 1 << 24;
    const int64_t blocks_f = (filters + sk::kBM - 1) / sk::kBM;
    const int64_t tiles_h = (high + {{TH}} - 1) / {{TH}}, tiles_w = (wide + {{TW}} - 1) / {{TW}};
    const bool tiled = rows == 3 && columns == 3 && stride == 1 && pad >= 0 && pad < most && channels < most && filters < most &&
                       height < most && width < most && tiles_h <= 65535 && tiles_w <= 65535 && batch <= 65535 &&
                       tiles_w * batch <= 65535;
    if (tiled) {
        const dim3 grid((unsigned)blocks_f, (unsigned)tiles_h, (unsigned)(tiles_w * batch));
        const bool aligned = width % 4 == 0 && channels % 8 == 0 && (uintptr_t)x % 8 == 0 && (uintptr_t)f % 16 == 0;
        const int y_vector = wide % 4 == 0 && (uintptr_t)y % 8 == 0;
        if (aligned)
            return sk::start<true>(grid, stream, y, x, f, (int)channels, (int)height, (int)width, (int)filters, (int)pad, (int)high,
                                   (int)wide, (int)tiles_w, y_vector);
        return sk::start<false>(grid, stream, y, x, f, (int)channels, (int)height, (int)width, (int)filters, (int)pad, (int)high,
                                (int)wide, (int)tiles_w, y_vector);
    }

    const int64_t all = batch * filters * high * wide;
    int64_t blocks = (all + 255) / 256;
    if (blocks > 1 << 30) blocks = 1 << 30;
    sk::direct<<<(unsigned)blocks, 256, 0, stream>>>(y, x, f, all, channels, height, width, filters, rows, columns, stride, pad, high, wide);
    return (int)cudaGetLastError();
}
