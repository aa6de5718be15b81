// c = a * transpose(b) by MFMA with roles: of four waves two only bring tiles into LDS, two only multiply, and two buffers lie
// between them. k is a multiple of 32. Compiled for gfx950 and not run.

namespace {

typedef __bf16 eight __attribute__((ext_vector_type(8)));
typedef float sixteen __attribute__((ext_vector_type(16)));
typedef uint32_t words __attribute__((ext_vector_type(4)));
// What a step needs: rows of 32 numbers of both factors.
struct Buffer {
    __bf16 a[64 * 32], b[128 * 32];
};

// Brings rows first .. first + 15 of a factor, columns k0 .. k0 + 31, into 1 KiB of LDS: a chunk of 16 bytes a lane, one behind
// the other. Rows beyond the last read the last one again; nobody stores what comes of them.
__device__ void bring(__bf16 *to, const __bf16 *from, int64_t first, int64_t rows, int64_t k0, int64_t k) {
    const int lane = threadIdx.x % 64;
    const int64_t row = min(first + lane / 4, rows - 1);
    // The place in LDS follows from the lane; which chunk of its row it takes is free, and keeps rows apart in the banks.
    const __bf16 *chunk = from + row * k + k0 + (lane % 4 ^ (lane / 16 & 3)) * 8;
    __builtin_amdgcn_global_load_lds((__attribute__((address_space(1))) void *)(uintptr_t)chunk,
                                     (__attribute__((address_space(3))) void *)to, 16, 0, 0);
}

// Where chunk `chunk` of a row lies in its tile.
__device__ int place(int row, int chunk) { return row * 32 + (chunk ^ (row / 4 & 3)) * 8; }

// A consumer's half of the block's tile, 64 x 64, takes 32 columns of k: two steps of four products.
__device__ void multiply(sixteen (&sum)[2][2], const __bf16 *a, const __bf16 *b) {
    const int lane = threadIdx.x % 64, half = threadIdx.x / 64;
    for (int step = 0; step < 32; step += 16) {
        // Lane l holds row l % 32 and, of 16 columns, the eight from 8 * (l / 32) on.
        const int row = lane % 32, chunk = step / 8 + lane / 32;
        eight left[2], right[2];
        for (int i = 0; i < 2; ++i) {
            left[i] = *reinterpret_cast<const eight *>(a + place(i * 32 + row, chunk));
            right[i] = *reinterpret_cast<const eight *>(b + place(half * 64 + i * 32 + row, chunk));
        }
        for (int i = 0; i < 2; ++i)
            for (int j = 0; j < 2; ++j)
                sum[i][j] = __builtin_amdgcn_mfma_f32_32x32x16_bf16(left[i], right[j], sum[i][j], 0, 0, 0);
    }
}

// Number v of a lane is row 8 * (v / 4) + 4 * (lane / 32) + v % 4 of its column lane % 32.
__device__ void store(__bf16 *c, const sixteen (&sum)[2][2], int64_t row0, int64_t column0, int64_t m, int64_t n) {
    const int lane = threadIdx.x % 64, half = threadIdx.x / 64;
#pragma unroll
    for (int i = 0; i < 2; ++i)
#pragma unroll
        for (int j = 0; j < 2; ++j)
#pragma unroll
            for (int v = 0; v < 16; ++v) {
                const int64_t row = row0 + i * 32 + v / 4 * 8 + lane / 32 * 4 + v % 4;
                const int64_t column = column0 + half * 64 + j * 32 + lane % 32;
                if (row < m && column < n) c[row * n + column] = static_cast<__bf16>(sum[i][j][v]);
            }
}

// A producer's half of a step: six loads.
__device__ void produce(Buffer &to, int half, const __bf16 *a, const __bf16 *b, int64_t row0, int64_t column0, int64_t step,
                        int64_t m, int64_t n, int64_t k) {
    for (int rows = half * 32; rows < half * 32 + 32; rows += 16) bring(to.a + rows * 32, a, row0 + rows, m, step * 32, k);
    for (int rows = half * 64; rows < half * 64 + 64; rows += 16) bring(to.b + rows * 32, b, column0 + rows, n, step * 32, k);
}

// What a wave brought is there, or it has read all that it asked for; then it meets the others.
__device__ void meet() { asm volatile("s_waitcnt vmcnt(0) lgkmcnt(0)\n\ts_barrier" ::: "memory"); }

// Each wave meets the others once a step and once before, whichever way it goes.
__global__ __launch_bounds__(256) void tiles(__bf16 *c, const __bf16 *a, const __bf16 *b, int64_t m, int64_t n, int64_t k) {
    __shared__ __attribute__((aligned(1024))) Buffer buffer[2];
    const int64_t row0 = (int64_t)blockIdx.y * 64, column0 = (int64_t)blockIdx.x * 128, steps = k / 32;
    const int wave = __builtin_amdgcn_readfirstlane(threadIdx.x / 64);
    if (wave >= 2) {
        produce(buffer[0], wave - 2, a, b, row0, column0, 0, m, n, k);
        meet();
        for (int64_t step = 0; step < steps; ++step) {
            if (step + 1 < steps) produce(buffer[(step + 1) % 2], wave - 2, a, b, row0, column0, step + 1, m, n, k);
            meet();
        }
        return;
    }
    // Where both want to issue, the products go first.
    __builtin_amdgcn_s_setprio(1);
    sixteen sum[2][2] = {};
    meet();
    for (int64_t step = 0; step < steps; ++step) {
        multiply(sum, buffer[step % 2].a, buffer[step % 2].b);
        meet();
    }
    store(c, sum, row0, column0, m, n);
}

}  // namespace

extern "C" void product(__bf16 *c, const __bf16 *a, const __bf16 *b, int64_t m, int64_t n, int64_t k, hipStream_t stream) {
    const dim3 grid((unsigned)((n + 127) / 128), (unsigned)((m + 63) / 64));
    tiles<<<grid, 256, 0, stream>>>(c, a, b, m, n, k);
}
