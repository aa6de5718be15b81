#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <cooperative_groups.h>
#include <stdint.h>

// The convolution is the product  sums[filter][pixel] = sum over (tap, channel) of A[filter][k] * B[pixel][k].
// Layout: a first launch turns x into [image][iy][ix][channel] and f into [tap][filter][channel], channels padded
// with zeros to a multiple of BK, so that a step of BK along k lies in one tap and is contiguous.
// Tiling: a block computes BM filters x BN pixels; SPLIT blocks of a cluster share the steps along k of one tile
// and add their sums through distributed shared memory.

// COMPUTE adds the product of one step to the sums. It is called by all threads of the block, 2 * BM of them
// (BM / 64 warpgroups of 128 threads), between barriers; on return a and b may be overwritten after a __syncthreads(),
// and sums must be complete (a kernel with wgmma commits and waits for all of its groups before it returns; the
// sketch has executed fence.proxy.async before).
// a: shared memory, aligned to 1024 bytes, BM rows (filters) of BK = 64 halves (128 bytes a row), k runs along the row.
// b: shared memory, aligned to 1024 bytes, BN rows (pixels) of BK = 64 halves (128 bytes a row), k runs along the row.
// Both are K-major in the 128-byte swizzle of wgmma: the 16-byte piece c (0..7) of row r lies at byte
// r * 128 + ((c ^ (r & 7)) * 16).
// Warpgroup g = threadIdx.x / 128 computes filters 64 * g .. 64 * g + 63 and all BN pixels. With
// w = (threadIdx.x / 32) % 4 and l = threadIdx.x % 32, sums[j][e] belongs to
// filter 64 * g + 16 * w + l / 4 + 8 * (e / 2) and pixel 8 * j + 2 * (l % 4) + e % 2
// (the accumulators of wgmma m64nNk16, or of mma m16n8k16 with 16 rows a warp).
static __device__ void COMPUTE(float (&sums)[{{BN}} / 8][4], const __half *a, const __half *b);

namespace sk {

constexpr int BM = {{BM}}, BN = {{BN}}, BK = {{BK}}, STAGES = {{STAGES}}, SPLIT = {{SPLIT}};
constexpr int PT = {{PT}}, PTHREADS = {{PTHREADS}};
constexpr int THREADS = 2 * BM;
constexpr int PIECES = BK / 8;                 // pieces of 16 bytes in a row of a tile
constexpr int STEP = THREADS / PIECES;         // rows that all threads copy at once
constexpr int A_ROWS = (BM + STEP - 1) / STEP, B_ROWS = (BN + STEP - 1) / STEP;
constexpr int A_BYTES = BM * BK * 2, B_BYTES = BN * BK * 2;
constexpr int ROW = BN + 8;                    // row of the sums in shared memory
constexpr int PIPE_BYTES = STAGES * (A_BYTES + B_BYTES);
constexpr int SUM_BYTES = BM * ROW * 4;
constexpr int SHARED = (PIPE_BYTES > SUM_BYTES ? PIPE_BYTES : SUM_BYTES) + 1024;

struct Shape {
    int64_t batch, channels, padded, height, width, filters, rows, columns, stride, pad, high, wide;
};

// Layout: blocks below x_blocks transpose tiles of x, the others rearrange one filter each.
static __global__ void __launch_bounds__(PTHREADS) arrange(__half *xp, __half *fp, const __half *x, const __half *f,
                                                           const Shape q, const int64_t x_blocks) {
    __shared__ __half tile[BK][PT + 2];
    const int64_t block = blockIdx.x;
    if (block < x_blocks) {
        const int64_t area = q.height * q.width;
        const int64_t p_tiles = (area + PT - 1) / PT, c_tiles = q.padded / BK;
        const int64_t p0 = block % p_tiles * PT, c0 = block / p_tiles % c_tiles * BK, image = block / p_tiles / c_tiles;
        for (int i = threadIdx.x; i < BK * PT; i += PTHREADS) {
            const int p = i % PT, c = i / PT;
            __half v = __float2half(0.0f);
            if (p0 + p < area && c0 + c < q.channels) v = x[(image * q.channels + c0 + c) * area + p0 + p];
            tile[c][p] = v;
        }
        __syncthreads();
        for (int i = threadIdx.x; i < BK / 2 * PT; i += PTHREADS) {
            const int c = i % (BK / 2) * 2, p = i / (BK / 2);
            if (p0 + p < area)
                *reinterpret_cast<__half2 *>(xp + (image * area + p0 + p) * q.padded + c0 + c) =
                    __halves2half2(tile[c][p], tile[c + 1][p]);
        }
    } else {
        const int64_t filter = block - x_blocks, taps = q.rows * q.columns;
        for (int64_t c = threadIdx.x; c < q.padded; c += PTHREADS) {
            const __half *from = f + (filter * q.channels + c) * taps;
            __half *to = fp + filter * q.padded + c;
            const int64_t next = q.filters * q.padded;
            const bool inside = c < q.channels;
#pragma unroll 9
            for (int64_t tap = 0; tap < taps; ++tap) to[tap * next] = inside ? from[tap] : __float2half(0.0f);
        }
    }
}

static __device__ __forceinline__ void copy16(uint32_t to, const __half *from, bool inside) {
    const int bytes = inside ? 16 : 0;         // the rest of the 16 bytes is filled with zeros
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\n" ::"r"(to), "l"(from), "r"(bytes) : "memory");
}

static __global__ void __launch_bounds__(THREADS) tiles(__half *y, const __half *xp, const __half *fp, const Shape q) {
    namespace cg = cooperative_groups;
    extern __shared__ unsigned char raw[];
    // The same offset in every block of the cluster: the address of raw is the same in each.
    const uint32_t raw_at = (uint32_t)__cvta_generic_to_shared(raw);
    unsigned char *const base = raw + ((1024u - (raw_at & 1023u)) & 1023u);
    const uint32_t base_at = (uint32_t)__cvta_generic_to_shared(base);

    const int tid = threadIdx.x;
    const int piece = tid % PIECES, row0 = tid / PIECES;
    const int64_t area = q.high * q.wide, all = q.batch * area;
    const int64_t n0 = (int64_t)blockIdx.x * BN, m0 = (int64_t)blockIdx.y * BM;
    const int part = blockIdx.z;

    // The pixels whose rows this thread copies.
    int64_t b_image[B_ROWS];
    int b_y[B_ROWS], b_x[B_ROWS];
    bool b_in[B_ROWS];
#pragma unroll
    for (int i = 0; i < B_ROWS; ++i) {
        const int64_t n = n0 + row0 + i * STEP;
        b_in[i] = row0 + i * STEP < BN && n < all;
        const int64_t m = b_in[i] ? n : 0;
        const int64_t image = m / area, p = m - image * area;
        const int64_t oy = p / q.wide, ox = p - oy * q.wide;
        b_image[i] = image * q.height * q.width;
        b_y[i] = (int)(oy * q.stride - q.pad);
        b_x[i] = (int)(ox * q.stride - q.pad);
    }

    // The steps along k of this block; channels run innermost, then columns, then rows of the filter.
    const int64_t per_tap = q.padded / BK, total = q.rows * q.columns * per_tap;
    const int64_t first = total * part / SPLIT, last = total * (part + 1) / SPLIT;
    int64_t tap = first / per_tap;
    int c_step = (int)(first - tap * per_tap);
    int r = (int)(tap / q.columns), s = (int)(tap - r * q.columns);
    const int height = (int)q.height, width = (int)q.width;

    auto load = [&](int stage) {
        const uint32_t a_at = base_at + stage * A_BYTES;
        const uint32_t b_at = base_at + STAGES * A_BYTES + stage * B_BYTES;
        const int64_t c = (int64_t)c_step * BK + piece * 8;
        const __half *const a_from = fp + tap * q.filters * q.padded + c;
#pragma unroll
        for (int i = 0; i < A_ROWS; ++i) {
            const int row = row0 + i * STEP;
            const bool inside = m0 + row < q.filters;
            if (row < BM)
                copy16(a_at + row * (BK * 2) + ((piece ^ (row & 7)) << 4), inside ? a_from + (m0 + row) * q.padded : fp, inside);
        }
#pragma unroll
        for (int i = 0; i < B_ROWS; ++i) {
            const int row = row0 + i * STEP;
            const int iy = b_y[i] + r, ix = b_x[i] + s;
            const bool inside = b_in[i] && iy >= 0 && iy < height && ix >= 0 && ix < width;
            if (row < BN)
                copy16(b_at + row * (BK * 2) + ((piece ^ (row & 7)) << 4),
                       inside ? xp + (b_image[i] + (int64_t)iy * width + ix) * q.padded + c : xp, inside);
        }
        if (++c_step == (int)per_tap) {
            c_step = 0;
            ++tap;
            if (++s == (int)q.columns) {
                s = 0;
                ++r;
            }
        }
    };

    float sums[BN / 8][4];
#pragma unroll
    for (int j = 0; j < BN / 8; ++j)
#pragma unroll
        for (int e = 0; e < 4; ++e) sums[j][e] = 0.0f;

    // What arrange wrote may be read from here on.
    cudaGridDependencySynchronize();

    int64_t loaded = first;
#pragma unroll 1
    for (int i = 0; i < STAGES - 1; ++i) {
        if (loaded < last) {
            load(i);
            ++loaded;
        }
        asm volatile("cp.async.commit_group;\n" ::: "memory");
    }
    int reading = 0, writing = STAGES - 1;
#pragma unroll 1
    for (int64_t k = first; k < last; ++k) {
        asm volatile("cp.async.wait_group %0;\n" ::"n"(STAGES - 2) : "memory");
        asm volatile("fence.proxy.async;\n" ::: "memory");
        __syncthreads();
        if (loaded < last) {
            load(writing);
            ++loaded;
        }
        asm volatile("cp.async.commit_group;\n" ::: "memory");
        COMPUTE(sums, reinterpret_cast<const __half *>(base + reading * A_BYTES),
                reinterpret_cast<const __half *>(base + STAGES * A_BYTES + reading * B_BYTES));
        reading = reading + 1 == STAGES ? 0 : reading + 1;
        writing = writing + 1 == STAGES ? 0 : writing + 1;
    }
    asm volatile("cp.async.wait_group 0;\n" ::: "memory");
    __syncthreads();

    // Sums into shared memory, where the blocks of the cluster add them and write whole rows of pixels.
    float *const mine = reinterpret_cast<float *>(base);
    {
        const int lane = tid % 32, top = tid / 32 * 16 + lane / 4;   // 64 * warpgroup + 16 * warp is 16 * (tid / 32)
#pragma unroll
        for (int j = 0; j < BN / 8; ++j) {
            const int col = 8 * j + 2 * (lane % 4);
            *reinterpret_cast<float2 *>(mine + top * ROW + col) = make_float2(sums[j][0], sums[j][1]);
            *reinterpret_cast<float2 *>(mine + (top + 8) * ROW + col) = make_float2(sums[j][2], sums[j][3]);
        }
    }
    cg::cluster_group cluster = cg::this_cluster();
    cluster.sync();
    const float *others[SPLIT];
#pragma unroll
    for (int z = 0; z < SPLIT; ++z) others[z] = cluster.map_shared_rank(mine, z);

    const int64_t image0 = n0 / area, p0 = n0 - image0 * area;
    const bool even = area % 2 == 0 && (reinterpret_cast<uintptr_t>(y) & 3) == 0;
    constexpr int SHARE = BM / SPLIT;
#pragma unroll 4
    for (int i = tid; i < SHARE * (BN / 2); i += THREADS) {
        const int row = part * SHARE + i / (BN / 2), col = i % (BN / 2) * 2;
        const int64_t filter = m0 + row;
        if (filter >= q.filters || n0 + col >= all) continue;
        float2 v = make_float2(0.0f, 0.0f);
#pragma unroll
        for (int z = 0; z < SPLIT; ++z) {
            const float2 o = *reinterpret_cast<const float2 *>(others[z] + row * ROW + col);
            v.x += o.x;
            v.y += o.y;
        }
        int64_t image = image0, p = p0 + col;
        while (p >= area) {
            p -= area;
            ++image;
        }
        __half *to = y + (image * q.filters + filter) * area + p;
        if (even) {                            // n0 + col and area are even: both pixels lie in one image
            *reinterpret_cast<__half2 *>(to) = __floats2half2_rn(v.x, v.y);
        } else {
            *to = __float2half_rn(v.x);
            if (n0 + col + 1 < all) {
                if (p + 1 == area) to = y + ((image + 1) * q.filters + filter) * area;
                else ++to;
                *to = __float2half_rn(v.y);
            }
        }
    }
    cluster.sync();                            // no block leaves while another reads its shared memory
}

}  // namespace sk

extern "C" int conv2d(__half *y, const __half *x, const __half *f, int64_t batch, int64_t channels, int64_t height,
                      int64_t width, int64_t filters, int64_t rows, int64_t columns, int64_t stride, int64_t pad,
                      cudaStream_t stream) {
    using namespace sk;
    if (BM % 64 != 0 || BN % 8 != 0 || BK != 64 || BM % SPLIT != 0 || STAGES < 2 || THREADS > 1024 || SHARED > 227 * 1024)
        return WS_INVALID;
    Shape q;
    q.batch = batch;
    q.channels = channels;
    q.padded = (channels + BK - 1) / BK * BK;
    q.height = height;
    q.width = width;
    q.filters = filters;
    q.rows = rows;
    q.columns = columns;
    q.stride = stride;
    q.pad = pad;
    q.high = (height + 2 * pad - rows) / stride + 1;
    q.wide = (width + 2 * pad - columns) / stride + 1;
    const int64_t all = batch * q.high * q.wide;
    if (all <= 0 || filters <= 0) return 0;

    // The stream's pool keeps a little freed memory for the next call instead of giving it back at every synchronization.
    static const bool kept = [] {
        int device = 0;
        cudaMemPool_t pool;
        if (cudaGetDevice(&device) != cudaSuccess || cudaDeviceGetDefaultMemPool(&pool, device) != cudaSuccess) return false;
        uint64_t now = 0, wanted = 256ull << 20;
        if (cudaMemPoolGetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &now) != cudaSuccess) return false;
        if (now >= wanted) return true;
        return cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &wanted) == cudaSuccess;
    }();
    (void)kept;

    const int64_t x_bytes = (batch * height * width * q.padded * 2 + 255) / 256 * 256;
    const int64_t f_bytes = (rows * columns * filters * q.padded * 2 + 255) / 256 * 256;
    unsigned char *space = nullptr;
    cudaError_t error = cudaMallocAsync((void **)&space, (size_t)(x_bytes + f_bytes), stream);
    if (error != cudaSuccess) return (int)error;
    __half *const xp = reinterpret_cast<__half *>(space);
    __half *const fp = reinterpret_cast<__half *>(space + x_bytes);

    const int64_t x_blocks = (height * width + PT - 1) / PT * (q.padded / BK) * batch;
    arrange<<<(unsigned)(x_blocks + filters), PTHREADS, 0, stream>>>(xp, fp, x, f, q, x_blocks);
    error = cudaGetLastError();

    if (error == cudaSuccess)
        error = cudaFuncSetAttribute(tiles, cudaFuncAttributeMaxDynamicSharedMemorySize, SHARED);
    if (error == cudaSuccess) {
        cudaLaunchConfig_t config = {};
        config.gridDim = dim3((unsigned)((all + BN - 1) / BN), (unsigned)((filters + BM - 1) / BM), (unsigned)SPLIT);
        config.blockDim = dim3((unsigned)THREADS, 1, 1);
        config.dynamicSmemBytes = SHARED;
        config.stream = stream;
        cudaLaunchAttribute attributes[2] = {};
        attributes[0].id = cudaLaunchAttributeClusterDimension;
        attributes[0].val.clusterDim.x = 1;
        attributes[0].val.clusterDim.y = 1;
        attributes[0].val.clusterDim.z = SPLIT;
        attributes[1].id = cudaLaunchAttributeProgrammaticStreamSerialization;
        attributes[1].val.programmaticStreamSerializationAllowed = 1;
        config.attrs = attributes;
        config.numAttrs = 2;
        error = cudaLaunchKernelEx(&config, tiles, y, (const __half *)xp, (const __half *)fp, (const Shape)q);
    }
    const cudaError_t freed = cudaFreeAsync(space, stream);
    return (int)(error != cudaSuccess ? error : freed);
}
