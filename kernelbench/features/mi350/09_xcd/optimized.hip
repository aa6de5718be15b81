// c = a * transpose(b) by MFMA, with blocks renumbered so that neighbouring tiles lie on one of the eight dies (XCDs) and share
// its L2. Compiled for gfx950 and not run.

namespace {

typedef __bf16 eight __attribute__((ext_vector_type(8)));
typedef float sixteen __attribute__((ext_vector_type(16)));
typedef uint32_t words __attribute__((ext_vector_type(4)));
// Numbers from row to row of a tile: 32, and 8 that keep rows apart in the banks.
constexpr int PITCH = 40;

// Rows first .. first + 127 of a factor, columns k0 .. k0 + 31, as 512 chunks of 16 bytes, two a thread. Beyond its ends lie
// zeros.
__device__ void fetch(words (&held)[2], const __bf16 *from, int64_t first, int64_t rows, int64_t k0, int64_t k) {
    for (int i = 0; i < 2; ++i) {
        const int chunk = threadIdx.x + 256 * i;
        const int64_t row = first + chunk / 4, column = k0 + chunk % 4 * 8;
        held[i] = words{};
        if (row < rows && column < k) held[i] = *reinterpret_cast<const words *>(from + row * k + column);
    }
}

__device__ void lay(__bf16 *tile, const words (&held)[2]) {
    for (int i = 0; i < 2; ++i) {
        const int chunk = threadIdx.x + 256 * i;
        *reinterpret_cast<words *>(tile + chunk / 4 * PITCH + chunk % 4 * 8) = held[i];
    }
}

// A wave's quarter of the block's tile, 64 x 64, takes 32 columns of k: two steps of four products.
__device__ void multiply(sixteen (&sum)[2][2], const __bf16 *a, const __bf16 *b) {
    const int lane = threadIdx.x % 64, wave = threadIdx.x / 64;
    for (int step = 0; step < 32; step += 16) {
        // Lane l holds row l % 32 and, of 16 columns, the eight from 8 * (l / 32) on.
        const int at = lane % 32 * PITCH + lane / 32 * 8 + step;
        eight left[2], right[2];
        for (int i = 0; i < 2; ++i) {
            left[i] = *reinterpret_cast<const eight *>(a + (wave / 2 * 64 + i * 32) * PITCH + at);
            right[i] = *reinterpret_cast<const eight *>(b + (wave % 2 * 64 + i * 32) * PITCH + at);
        }
        for (int i = 0; i < 2; ++i)
            for (int j = 0; j < 2; ++j)
                sum[i][j] = __builtin_amdgcn_mfma_f32_32x32x16_bf16(left[i], right[j], sum[i][j], 0, 0, 0);
    }
}

// Number v of a lane is row 8 * (v / 4) + 4 * (lane / 32) + v % 4 of its column lane % 32.
__device__ void store(__bf16 *c, const sixteen (&sum)[2][2], int64_t row0, int64_t column0, int64_t m, int64_t n) {
    const int lane = threadIdx.x % 64, wave = threadIdx.x / 64;
#pragma unroll
    for (int i = 0; i < 2; ++i)
#pragma unroll
        for (int j = 0; j < 2; ++j)
#pragma unroll
            for (int v = 0; v < 16; ++v) {
                const int64_t row = row0 + wave / 2 * 64 + i * 32 + v / 4 * 8 + lane / 32 * 4 + v % 4;
                const int64_t column = column0 + wave % 2 * 64 + j * 32 + lane % 32;
                if (row < m && column < n) c[row * n + column] = static_cast<__bf16>(sum[i][j][v]);
            }
}

constexpr unsigned DIES = 8;

// Blocks are dealt out to the dies in turn: block b goes to die b % 8, as its b / 8-th. Each die gets a run of tiles; the first
// count % 8 of them have one more.
__device__ unsigned renumbered(unsigned block, unsigned count) {
    const unsigned die = block % DIES;
    return die * (count / DIES) + min(die, count % DIES) + block / DIES;
}

__global__ __launch_bounds__(256) void tiles(__bf16 *c, const __bf16 *a, const __bf16 *b, int64_t m, int64_t n, int64_t k) {
    const int64_t across = (n + 127) / 128, tile = renumbered(blockIdx.x, gridDim.x);
    __shared__ __attribute__((aligned(16))) __bf16 a_tile[128 * PITCH], b_tile[128 * PITCH];
    const int64_t row0 = tile / across * 128, column0 = tile % across * 128;
    sixteen sum[2][2] = {};
    for (int64_t k0 = 0; k0 < k; k0 += 32) {
        words left[2], right[2];
        fetch(left, a, row0, m, k0, k);
        fetch(right, b, column0, n, k0, k);
        __syncthreads();
        lay(a_tile, left);
        lay(b_tile, right);
        __syncthreads();
        multiply(sum, a_tile, b_tile);
    }
    store(c, sum, row0, column0, m, n);
}

}  // namespace

extern "C" void product(__bf16 *c, const __bf16 *a, const __bf16 *b, int64_t m, int64_t n, int64_t k, hipStream_t stream) {
    const int64_t count = (n + 127) / 128 * ((m + 127) / 128);
    tiles<<<(unsigned)count, 256, 0, stream>>>(c, a, b, m, n, k);
}
