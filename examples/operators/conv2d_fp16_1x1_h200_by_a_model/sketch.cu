#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <stdint.h>

// The convolution is a product of matrices: Y[filters][pixels] = F[filters][depth] * X[depth][pixels], with
// depth = channels * rows * columns and pixels = batch * out_height * out_width. A filter of 1x1 with stride 1 and no padding
// reads X in place (16 bytes at a time); everything else gathers X while its tile is filled.
//
// COMPUTE: one warp adds the product of its tile to its sums; all 32 lanes call it together, lane = threadIdx.x % 32 (the block
// is one-dimensional). No barrier of the block inside.
//   a: shared memory, {{WM}} rows by {{BK}} columns (depth is contiguous), {{BK}} + 8 halves from row to row.
//   b: shared memory, {{BK}} rows by {{WN}} columns (pixels are contiguous), {{BN}} + 8 halves from row to row.
//   Both are aligned to 16 bytes, as is each of their rows; the strides are odd multiples of 16 bytes, so that ldmatrix (a) and
//   ldmatrix.trans (b) meet no bank conflicts. All of a and b is valid (edges are filled with zeros).
//   sums[i][j][e] is the accumulator of mma.sync.m16n8k16 (f16 inputs, f32 sums): it belongs to
//   row 16 * i + lane / 4 + 8 * (e / 2) and column 8 * j + 2 * (lane % 4) + e % 2 of the warp's tile.
// {{WM}}, {{WN}} and {{BK}} are multiples of 16.
static __device__ void COMPUTE(float (&sums)[{{WM}} / 16][{{WN}} / 8][4], const __half *a, const __half *b);

namespace conv_sketch {

constexpr int kBM = {{BM}}, kBN = {{BN}}, kBK = {{BK}}, kWM = {{WM}}, kWN = {{WN}}, kStages = {{STAGES}}, kGroup = {{GROUP}};
constexpr int kWarpsM = kBM / kWM, kWarpsN = kBN / kWN, kThreads = kWarpsM * kWarpsN * 32;
constexpr int kStrideA = kBK + 8, kStrideB = kBN + 8, kStrideC = kWN + 8;
constexpr int kTileA = kBM * kStrideA, kTileB = kBK * kStrideB;
constexpr int kOperands = kStages * (kTileA + kTileB) * 2, kResults = kWarpsM * kWarpsN * kWM * kStrideC * 2;
constexpr int kBytes = kOperands > kResults ? kOperands : kResults;

struct Shape {
    int64_t channels, height, width, filters, rows, columns, stride, pad, high, wide;
    int64_t plane, pixels, depth;  // high * wide, batch * plane, channels * rows * columns
};

// 16 bytes from global to shared memory; zeros where !inside.
static __device__ __forceinline__ void copy16(__half *to, const __half *from, bool inside) {
    const unsigned at = (unsigned)__cvta_generic_to_shared(to);
    const int bytes = inside ? 16 : 0;
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\n" ::"r"(at), "l"(from), "r"(bytes) : "memory");
}
static __device__ __forceinline__ void commit() { asm volatile("cp.async.commit_group;\n" ::: "memory"); }
template <int LEFT>
static __device__ __forceinline__ void await() {
    asm volatile("cp.async.wait_group %0;\n" ::"n"(LEFT) : "memory");
}

// Filters m0.. and depth k0.. to shared memory.
template <bool DENSE, typename Index>
static __device__ __forceinline__ void load_a(__half *to, const __half *__restrict__ f, Index m0, Index k0, Index filters, Index depth) {
    if (DENSE) {
        constexpr int kRow = kBK / 8, kAll = kBM * kRow;
#pragma unroll
        for (int base = 0; base < kAll; base += kThreads) {
            const int i = base + (int)threadIdx.x;
            if (kAll % kThreads == 0 || i < kAll) {
                const int row = i / kRow, column = i % kRow * 8;
                const Index m = m0 + row, k = k0 + column;
                const bool inside = m < filters && k < depth;
                copy16(to + row * kStrideA + column, f + (inside ? m * depth + k : (Index)0), inside);
            }
        }
    } else {
        for (int i = (int)threadIdx.x; i < kBM * kBK; i += kThreads) {
            const int row = i / kBK, column = i % kBK;
            const Index m = m0 + row, k = k0 + column;
            __half value = __float2half(0.0f);
            if (m < filters && k < depth) value = f[m * depth + k];
            to[row * kStrideA + column] = value;
        }
    }
}

// Depth k0.. and pixels n0.. to shared memory.
template <bool DENSE, typename Index>
static __device__ __forceinline__ void load_b(__half *to, const __half *__restrict__ x, Index k0, Index n0, const Shape &p) {
    const Index pixels = (Index)p.pixels, plane = (Index)p.plane, depth = (Index)p.depth;
    if (DENSE) {
        constexpr int kRow = kBN / 8, kAll = kBK * kRow;
        const bool single = pixels == plane;
#pragma unroll
        for (int base = 0; base < kAll; base += kThreads) {
            const int i = base + (int)threadIdx.x;
            if (kAll % kThreads == 0 || i < kAll) {
                const int row = i / kRow, column = i % kRow * 8;
                const Index k = k0 + row, n = n0 + column;
                const bool inside = k < depth && n < pixels;  // plane % 8 == 0: eight pixels are of one image
                Index at = 0;
                if (inside) {
                    at = k * plane + n;
                    if (!single) at += n / plane * ((depth - 1) * plane);
                }
                copy16(to + row * kStrideB + column, x + at, inside);
            }
        }
    } else {
        const Index channels = (Index)p.channels, height = (Index)p.height, width = (Index)p.width, columns = (Index)p.columns;
        const Index window = (Index)(p.rows * p.columns), stride = (Index)p.stride, pad = (Index)p.pad, wide = (Index)p.wide;
        for (int i = (int)threadIdx.x; i < kBK * kBN; i += kThreads) {
            const int row = i / kBN, column = i % kBN;
            const Index k = k0 + row, n = n0 + column;
            __half value = __float2half(0.0f);
            if (k < depth && n < pixels) {
                const Index channel = k / window, tap = k - channel * window, r = tap / columns, s = tap - r * columns;
                const Index image = n / plane, rest = n - image * plane, oy = rest / wide, ox = rest - oy * wide;
                const Index iy = oy * stride + r - pad, ix = ox * stride + s - pad;
                if (iy >= 0 && iy < height && ix >= 0 && ix < width)
                    value = x[((image * channels + channel) * height + iy) * width + ix];
            }
            to[row * kStrideB + column] = value;
        }
    }
}

template <bool DENSE, typename Index>
static __global__ void __launch_bounds__(kThreads)
    tiles(__half *__restrict__ y, const __half *__restrict__ x, const __half *__restrict__ f, const Shape p, const int64_t first_band,
          const int64_t first_column) {
    extern __shared__ __align__(128) unsigned char conv_sketch_memory[];
    __half *const as = reinterpret_cast<__half *>(conv_sketch_memory);
    __half *const bs = as + kStages * kTileA;

    const Index filters = (Index)p.filters, pixels = (Index)p.pixels, plane = (Index)p.plane, depth = (Index)p.depth;
    // Blocks that follow each other share a tile of X: a band of kGroup tiles of filters walks over the pixels.
    const Index m0 = (((Index)first_band + (Index)blockIdx.y) * kGroup + (Index)(blockIdx.x % kGroup)) * kBM;
    const Index n0 = ((Index)first_column + (Index)(blockIdx.x / kGroup)) * kBN;
    if (m0 >= filters || n0 >= pixels) return;

    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    const int wm = warp / kWarpsN * kWM, wn = warp % kWarpsN * kWN;

    float sums[{{WM}} / 16][{{WN}} / 8][4];
#pragma unroll
    for (int i = 0; i < kWM / 16; ++i)
#pragma unroll
        for (int j = 0; j < kWN / 8; ++j)
#pragma unroll
            for (int e = 0; e < 4; ++e) sums[i][j][e] = 0.0f;

    const Index steps = (depth + (kBK - 1)) / kBK;
#pragma unroll
    for (int s = 0; s < kStages - 1; ++s) {
        if (s < steps) {
            load_b<DENSE, Index>(bs + s * kTileB, x, (Index)(s * kBK), n0, p);
            load_a<DENSE, Index>(as + s * kTileA, f, m0, (Index)(s * kBK), filters, depth);
        }
        commit();
    }
    int reading = 0, writing = kStages - 1;
    for (Index step = 0; step < steps; ++step) {
        await<kStages - 2>();
        __syncthreads();  // this step's tile has come, and the slot of the step before is free
        const Index next = step + (kStages - 1);
        if (next < steps) {
            load_b<DENSE, Index>(bs + writing * kTileB, x, next * kBK, n0, p);
            load_a<DENSE, Index>(as + writing * kTileA, f, m0, next * kBK, filters, depth);
        }
        commit();
        COMPUTE(sums, as + reading * kTileA + wm * kStrideA, bs + reading * kTileB + wn);
        reading = reading + 1 == kStages ? 0 : reading + 1;
        writing = writing + 1 == kStages ? 0 : writing + 1;
    }
    await<0>();
    __syncthreads();  // the operands' memory now takes the results

    // Each warp turns its sums into rows of its own piece of shared memory and stores them in order.
    __half *const cs = as + warp * (kWM * kStrideC);
#pragma unroll
    for (int i = 0; i < kWM / 16; ++i)
#pragma unroll
        for (int j = 0; j < kWN / 8; ++j) {
            __half *const to = cs + (i * 16 + lane / 4) * kStrideC + j * 8 + lane % 4 * 2;
            *reinterpret_cast<__half2 *>(to) = __floats2half2_rn(sums[i][j][0], sums[i][j][1]);
            *reinterpret_cast<__half2 *>(to + 8 * kStrideC) = __floats2half2_rn(sums[i][j][2], sums[i][j][3]);
        }
    __syncwarp();

    const bool single = pixels == plane;
    if (DENSE) {
        constexpr int kRow = kWN / 8, kAll = kWM * kRow;
#pragma unroll
        for (int base = 0; base < kAll; base += 32) {
            const int i = base + lane;
            if (kAll % 32 == 0 || i < kAll) {
                const int row = i / kRow, column = i % kRow * 8;
                const Index m = m0 + (wm + row), n = n0 + (wn + column);
                if (m < filters && n < pixels) {
                    Index at = m * plane + n;
                    if (!single) at += n / plane * ((filters - 1) * plane);
                    *reinterpret_cast<uint4 *>(y + at) = *reinterpret_cast<const uint4 *>(cs + row * kStrideC + column);
                }
            }
        }
    } else {
        for (int i = lane; i < kWM * kWN; i += 32) {
            const int row = i / kWN, column = i % kWN;
            const Index m = m0 + (wm + row), n = n0 + (wn + column);
            if (m < filters && n < pixels) {
                Index at = m * plane + n;
                if (!single) at += n / plane * ((filters - 1) * plane);
                y[at] = cs[row * kStrideC + column];
            }
        }
    }
}

template <bool DENSE, typename Index>
static int launch(__half *y, const __half *x, const __half *f, const Shape &p, cudaStream_t stream) {
    if (kBytes > 48 * 1024) {
        const cudaError_t error = cudaFuncSetAttribute(tiles<DENSE, Index>, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
        if (error != cudaSuccess) return (int)error;
    }
    const int64_t bands = ((p.filters + kBM - 1) / kBM + kGroup - 1) / kGroup, across = (p.pixels + kBN - 1) / kBN;
    const int64_t most_bands = 32768, most_across = 1 << 20;  // what one grid takes; more than one launch only for giants
    for (int64_t band = 0; band < bands; band += most_bands)
        for (int64_t column = 0; column < across; column += most_across) {
            const int64_t down = bands - band < most_bands ? bands - band : most_bands;
            const int64_t along = across - column < most_across ? across - column : most_across;
            const dim3 grid((unsigned)(along * kGroup), (unsigned)down);
            tiles<DENSE, Index><<<grid, kThreads, kBytes, stream>>>(y, x, f, p, band, column);
        }
    return (int)cudaGetLastError();
}

}  // namespace conv_sketch

extern "C" int conv2d(__half *y, const __half *x, const __half *f, int64_t batch, int64_t channels, int64_t height, int64_t width,
                      int64_t filters, int64_t rows, int64_t columns, int64_t stride, int64_t pad, cudaStream_t stream) {
    using namespace conv_sketch;
    if (kBytes > 227 * 1024 || kThreads > 1024 || kStages < 2 || kBM % kWM != 0 || kBN % kWN != 0 || kWM % 16 != 0 || kWN % 16 != 0 ||
        kBK % 16 != 0)
        return WS_INVALID;
    if (batch <= 0 || filters <= 0 || height + 2 * pad < rows || width + 2 * pad < columns) return 0;

    Shape p;
    p.channels = channels;
    p.height = height;
    p.width = width;
    p.filters = filters;
    p.rows = rows;
    p.columns = columns;
    p.stride = stride;
    p.pad = pad;
    p.high = (height + 2 * pad - rows) / stride + 1;
    p.wide = (width + 2 * pad - columns) / stride + 1;
    p.plane = p.high * p.wide;
    p.pixels = batch * p.plane;
    p.depth = channels * rows * columns;
    if (p.pixels <= 0) return 0;

    const bool aligned = ((reinterpret_cast<uintptr_t>(y) | reinterpret_cast<uintptr_t>(x) | reinterpret_cast<uintptr_t>(f)) & 15) == 0;
    const bool dense = rows == 1 && columns == 1 && stride == 1 && pad == 0 && p.plane % 8 == 0 && p.depth % 8 == 0 && aligned;
    const int64_t limit = 1 << 30;
    const bool small = batch * channels * height * width <= limit && filters * p.depth <= limit && filters * p.pixels <= limit &&
                       p.depth <= limit && height + 2 * pad <= limit && width + 2 * pad <= limit && stride <= limit &&
                       rows * columns <= limit;
    if (dense) return small ? launch<true, int>(y, x, f, p, stream) : launch<true, int64_t>(y, x, f, p, stream);
    return small ? launch<false, int>(y, x, f, p, stream) : launch<false, int64_t>(y, x, f, p, stream);
}
