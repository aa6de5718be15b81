#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <stdint.h>

// One step of 16 along k for one warp: sums += left * right, m16n8k16 on the tensor cores, all operands in registers.
// left[i] holds the four registers of the A fragment of rows 16 i .. 16 i + 15;
// right[j] holds the B fragments of columns 16 j .. 16 j + 7 (registers 0, 1) and 16 j + 8 .. 16 j + 15 (registers 2, 3);
// sums[i][j] is the accumulator of rows 16 i .. and columns 8 j ...
static __device__ __forceinline__ void COMPUTE(float (&sums)[{{WM}} / 16][{{WN}} / 8][4], const uint32_t (&left)[{{WM}} / 16][4], const uint32_t (&right)[{{WN}} / 16][4]);

// Moves a share of one stage from global into shared memory, by all threads of the block (one-dimensional, one warp for
// each {{WM}} x {{WN}} of the tile): every thread handles its chunks of 8 halves number i with i % parts == part.
// left: {{BM}} rows of {{BK}} halves; chunk c of row r lies at place c ^ (({{BK}} == 32) ? (r >> 1) & 3 : r & 7) of its row.
// right: {{BK}} rows of {{BN}} halves; chunk c of row r lies at place c ^ (r & 7) of its row.
// a and b point at the tile's first element in the matrices, whose rows are k and n halves long.
// rows, columns, depth: how much of the tile lies inside (at most {{BM}}, {{BN}}, {{BK}}); depth 0: nothing is to be moved.
// mode 0: the tile is whole, rows are aligned to 16 bytes, offsets inside a tile fit 31 bits: cp.async without checks.
// mode 1: rows are aligned to 16 bytes, chunks are wholly inside or outside: cp.async, zeros outside.
// mode 2: nothing is aligned: element by element, zeros outside.
// It does not commit a group of copies; that is done here.
static __device__ __forceinline__ void PACK(__half *left, __half *right, const __half *a, const __half *b, int64_t k, int64_t n, int rows, int columns, int depth, int mode, int part, int parts);

namespace plan {
constexpr int warps_down = {{BM}} / {{WM}};
constexpr int warps_across = {{BN}} / {{WN}};
constexpr int threads = warps_down * warps_across * 32;
constexpr int steps = {{BK}} / 16;                             // of 16 along k in one stage; even
constexpr int left_halves = {{BM}} * {{BK}};
constexpr int stage_halves = ({{BM}} + {{BN}}) * {{BK}};
constexpr int pipeline_bytes = {{STAGES}} * stage_halves * 2;
constexpr int output_bytes = {{BM}} * {{BN}} * 2;
constexpr int shared_bytes = pipeline_bytes > output_bytes ? pipeline_bytes : output_bytes;
}

// Reads the fragments of one step from shared memory. left, right: shared addresses of this lane's first row in the stage.
static __device__ __forceinline__ void fragments(uint32_t (&fa)[{{WM}} / 16][4], uint32_t (&fb)[{{WN}} / 16][4], uint32_t left, uint32_t right, int step, int lane, int warp_across) {
    const int high = lane >> 4;
    const int turn = ({{BK}} == 32) ? ((lane >> 1) & 3) : (lane & 7);
    const uint32_t from = left + (uint32_t)(((step * 2 + high) ^ turn) << 4);
#pragma unroll
    for (int i = 0; i < {{WM}} / 16; ++i) {
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];\n"
                     : "=r"(fa[i][0]), "=r"(fa[i][1]), "=r"(fa[i][2]), "=r"(fa[i][3])
                     : "r"(from + (uint32_t)(i * 16 * {{BK}} * 2))
                     : "memory");
    }
#pragma unroll
    for (int j = 0; j < {{WN}} / 16; ++j) {
        const int chunk = (warp_across * ({{WN}} / 8) + j * 2 + high) ^ (lane & 7);
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];\n"
                     : "=r"(fb[j][0]), "=r"(fb[j][1]), "=r"(fb[j][2]), "=r"(fb[j][3])
                     : "r"(right + (uint32_t)(chunk << 4) + (uint32_t)(step * 16 * {{BN}} * 2))
                     : "memory");
    }
}

static __device__ __forceinline__ void commit_copies() {
    asm volatile("cp.async.commit_group;\n" ::: "memory");
}

static __device__ __forceinline__ void wait_for_stage() {
    asm volatile("cp.async.wait_group %0;\n" ::"n"({{STAGES}} - 2) : "memory");
}

template <int mode>
static __global__ void __launch_bounds__(plan::threads, 1)
product(__half *__restrict__ c, const __half *__restrict__ a, const __half *__restrict__ b, int64_t m, int64_t n, int64_t k, unsigned down, unsigned across) {
    extern __shared__ __align__(128) unsigned char shared_store[];
    __half *const store = reinterpret_cast<__half *>(shared_store);

    const int lane = threadIdx.x & 31;
    const int warp = threadIdx.x >> 5;
    const int warp_down = warp / plan::warps_across;
    const int warp_across = warp % plan::warps_across;

    // Bands of GROUP rows of tiles, walked column by column: blocks that run together share A and B in the L2 cache.
    const unsigned band = {{GROUP}}u * across;
    const unsigned first = blockIdx.x / band * {{GROUP}}u;
    const unsigned within = blockIdx.x % band;
    const unsigned height = down - first < {{GROUP}}u ? down - first : {{GROUP}}u;
    const int64_t row = (int64_t)(first + within % height) * {{BM}};
    const int64_t column = (int64_t)(within / height) * {{BN}};

    const int rows = m - row < {{BM}} ? (int)(m - row) : {{BM}};
    const int columns = n - column < {{BN}} ? (int)(n - column) : {{BN}};
    const int tiles = (int)((k + {{BK}} - 1) / {{BK}});
    const int last = (int)(k - (int64_t)(tiles - 1) * {{BK}});  // depth of the last tile

    const __half *from_a = a + row * k;
    const __half *from_b = b + column;
    const int64_t stride_b = n * {{BK}};

    float sums[{{WM}} / 16][{{WN}} / 8][4];
#pragma unroll
    for (int i = 0; i < {{WM}} / 16; ++i)
#pragma unroll
        for (int j = 0; j < {{WN}} / 8; ++j)
#pragma unroll
            for (int e = 0; e < 4; ++e) sums[i][j][e] = 0.0f;

    // Fill all stages but one.
    int load = 0;  // the tile that from_a and from_b point at
#pragma unroll
    for (int s = 0; s < {{STAGES}} - 1; ++s) {
        const int depth = load >= tiles ? 0 : (mode != 0 && load == tiles - 1) ? last : {{BK}};
        PACK(store + s * plan::stage_halves, store + s * plan::stage_halves + plan::left_halves, from_a, from_b, k, n, rows, columns, depth, mode, 0, 1);
        commit_copies();
        ++load;
        from_a += {{BK}};
        from_b += stride_b;
    }

    const uint32_t base = (uint32_t)__cvta_generic_to_shared(store);
    const uint32_t base_left = base + (uint32_t)((warp_down * {{WM}} + (lane & 15)) * {{BK}} * 2);
    const uint32_t base_right = base + (uint32_t)((plan::left_halves + (lane & 15) * {{BN}}) * 2);

    uint32_t fa[2][{{WM}} / 16][4];
    uint32_t fb[2][{{WN}} / 16][4];
    int read = 0;
    int write = {{STAGES}} - 1;
    int depth = load >= tiles ? 0 : (mode != 0 && load == tiles - 1) ? last : {{BK}};

    wait_for_stage();
    __syncthreads();
    fragments(fa[0], fb[0], base_left, base_right, 0, lane, warp_across);
    PACK(store + write * plan::stage_halves, store + write * plan::stage_halves + plan::left_halves, from_a, from_b, k, n, rows, columns, depth, mode, 0, plan::steps);

#pragma unroll 1
    for (int tile = 0; tile < tiles; ++tile) {
#pragma unroll
        for (int step = 0; step < plan::steps; ++step) {
            if (step == plan::steps - 1) {
                // The fragments of this last step are in registers already: the stage is free, the next one is read.
                wait_for_stage();
                __syncthreads();
                read = read + 1 == {{STAGES}} ? 0 : read + 1;
                write = write + 1 == {{STAGES}} ? 0 : write + 1;
                ++load;
                from_a += {{BK}};
                from_b += stride_b;
                depth = load >= tiles ? 0 : (mode != 0 && load == tiles - 1) ? last : {{BK}};
            }
            const uint32_t offset = (uint32_t)(read * plan::stage_halves * 2);
            fragments(fa[(step + 1) & 1], fb[(step + 1) & 1], base_left + offset, base_right + offset, (step + 1) % plan::steps, lane, warp_across);
            PACK(store + write * plan::stage_halves, store + write * plan::stage_halves + plan::left_halves, from_a, from_b, k, n, rows, columns, depth, mode, (step + 1) % plan::steps, plan::steps);
            if (step == plan::steps - 2) commit_copies();
            COMPUTE(sums, fa[step & 1], fb[step & 1]);
        }
    }

    // The sums pass through shared memory, each warp in a patch of its own, so that whole segments are written.
    asm volatile("cp.async.wait_all;\n" ::: "memory");
    __syncthreads();
    __half *const patch = store + warp * ({{WM}} * {{WN}});
#pragma unroll
    for (int i = 0; i < {{WM}} / 16; ++i)
#pragma unroll
        for (int j = 0; j < {{WN}} / 8; ++j)
#pragma unroll
            for (int h = 0; h < 2; ++h) {
                const int r = i * 16 + h * 8 + (lane >> 2);
                const int turn = ({{WN}} == 32) ? ((r >> 1) & 3) : (r & 7);
                *reinterpret_cast<__half2 *>(patch + r * {{WN}} + ((j ^ turn) * 8) + (lane & 3) * 2) = __floats2half2_rn(sums[i][j][2 * h], sums[i][j][2 * h + 1]);
            }
    __syncwarp();
    const int warp_row = warp_down * {{WM}};
    const int warp_column = warp_across * {{WN}};
#pragma unroll
    for (int i = 0; i < {{WM}} * {{WN}} / 256; ++i) {
        const int at = lane + i * 32;
        const int r = at / ({{WN}} / 8);
        const int chunk = at % ({{WN}} / 8);
        const int turn = ({{WN}} == 32) ? ((r >> 1) & 3) : (r & 7);
        const __half *const from = patch + r * {{WN}} + ((chunk ^ turn) * 8);
        const int tile_row = warp_row + r;
        const int tile_column = warp_column + chunk * 8;
        if (mode == 0) {
            __stcs(reinterpret_cast<uint4 *>(c + (row + tile_row) * n + column + tile_column), *reinterpret_cast<const uint4 *>(from));
        } else if (mode == 1) {
            if (tile_row < rows && tile_column < columns)
                *reinterpret_cast<uint4 *>(c + (row + tile_row) * n + column + tile_column) = *reinterpret_cast<const uint4 *>(from);
        } else {
            if (tile_row < rows) {
#pragma unroll
                for (int e = 0; e < 8; ++e)
                    if (tile_column + e < columns) c[(row + tile_row) * n + column + tile_column + e] = from[e];
            }
        }
    }
}

extern "C" int gemm(__half *c, const __half *a, const __half *b, int64_t m, int64_t n, int64_t k, cudaStream_t stream) {
    if ({{BM}} % {{WM}} != 0 || {{BN}} % {{WN}} != 0 || {{BK}} % 32 != 0 || {{STAGES}} < 2 || plan::threads > 1024 || plan::shared_bytes > 232448) return WS_INVALID;
    if (m <= 0 || n <= 0) return 0;
    if (k < 0) k = 0;
    const int64_t down = (m + {{BM}} - 1) / {{BM}};
    const int64_t across = (n + {{BN}} - 1) / {{BN}};

    const uintptr_t places = reinterpret_cast<uintptr_t>(a) | reinterpret_cast<uintptr_t>(b) | reinterpret_cast<uintptr_t>(c);
    const bool aligned = places % 16 == 0 && n % 8 == 0 && k % 8 == 0;
    const bool whole = m % {{BM}} == 0 && n % {{BN}} == 0 && k % {{BK}} == 0 && k * {{BM}} < 2147483647ll && n * {{BK}} < 2147483647ll;

    void (*kernel)(__half *, const __half *, const __half *, int64_t, int64_t, int64_t, unsigned, unsigned) = product<2>;
    if (aligned && whole) kernel = product<0>;
    else if (aligned) kernel = product<1>;
    const cudaError_t error = cudaFuncSetAttribute((const void *)kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, plan::shared_bytes);
    if (error != cudaSuccess) return (int)error;
    kernel<<<dim3((unsigned)(down * across)), dim3((unsigned)plan::threads), plan::shared_bytes, stream>>>(c, a, b, m, n, k, (unsigned)down, (unsigned)across);
    return (int)cudaGetLastError();
}
