// c = a * transpose(b) by MFMA from a ring of three places in LDS, which loads fill past the registers, two steps ahead. k is a
// multiple of 32. Compiled for gfx950 and not run.

namespace {

typedef __bf16 eight __attribute__((ext_vector_type(8)));
typedef float sixteen __attribute__((ext_vector_type(16)));
typedef uint32_t words __attribute__((ext_vector_type(4)));
constexpr int PLACES = 3;
// Both tiles of a place: 128 rows of 32 numbers each.
struct Place {
    __bf16 a[128 * 32], b[128 * 32];
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

// A wave's quarter of the block's tile, 64 x 64, takes 32 columns of k: two steps of four products.
__device__ void multiply(sixteen (&sum)[2][2], const __bf16 *a, const __bf16 *b) {
    const int lane = threadIdx.x % 64, wave = threadIdx.x / 64;
    for (int step = 0; step < 32; step += 16) {
        // Lane l holds row l % 32 and, of 16 columns, the eight from 8 * (l / 32) on.
        const int row = lane % 32, chunk = step / 8 + lane / 32;
        eight left[2], right[2];
        for (int i = 0; i < 2; ++i) {
            left[i] = *reinterpret_cast<const eight *>(a + place(wave / 2 * 64 + i * 32 + row, chunk));
            right[i] = *reinterpret_cast<const eight *>(b + place(wave % 2 * 64 + i * 32 + row, chunk));
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

__global__ __launch_bounds__(256) void tiles(__bf16 *c, const __bf16 *a, const __bf16 *b, int64_t m, int64_t n, int64_t k) {
    __shared__ __attribute__((aligned(1024))) Place ring[PLACES];
    const int64_t row0 = (int64_t)blockIdx.y * 128, column0 = (int64_t)blockIdx.x * 128, steps = k / 32;
    // A wave brings 32 rows of each tile: four loads a step. The wave's number is the same in all its lanes, and so is what it
    // brings.
    const int wave = __builtin_amdgcn_readfirstlane(threadIdx.x / 64);
    const auto fill = [&](int64_t step) {
        Place &place = ring[step % PLACES];
        for (int rows = wave * 32; rows < wave * 32 + 32; rows += 16) {
            bring(place.a + rows * 32, a, row0 + rows, m, step * 32, k);
            bring(place.b + rows * 32, b, column0 + rows, n, step * 32, k);
        }
    };
    sixteen sum[2][2] = {};
    for (int64_t step = 0; step < PLACES - 1 && step < steps; ++step) fill(step);
    for (int64_t step = 0; step < steps; ++step) {
        // Loads end in their order: all but the four of the step after are here. The last step has none behind it. After the
        // barrier every wave's part is here, and nobody reads the place of the step before any more.
        if (step + 1 < steps) {
            asm volatile("s_waitcnt vmcnt(4) lgkmcnt(0)\n\ts_barrier" ::: "memory");
        } else {
            asm volatile("s_waitcnt vmcnt(0) lgkmcnt(0)\n\ts_barrier" ::: "memory");
        }
        if (step + PLACES - 1 < steps) fill(step + PLACES - 1);
        multiply(sum, ring[step % PLACES].a, ring[step % PLACES].b);
    }
    store(c, sum, row0, column0, m, n);
}

}  // namespace

extern "C" void product(__bf16 *c, const __bf16 *a, const __bf16 *b, int64_t m, int64_t n, int64_t k, hipStream_t stream) {
    tiles<<<dim3((unsigned)((n + 127) / 128), (unsigned)((m + 127) / 128)), 256, 0, stream>>>(c, a, b, m, n, k);
}
