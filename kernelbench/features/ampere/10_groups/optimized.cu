// c = a * transpose(b) by blocks that stay for the whole launch and take their tiles in bands of four rows of tiles, so that what
// runs at the same time finds its factors in L2.
#include <cuda_bf16.h>
#include <stdint.h>

namespace {

constexpr int side = 64, group = 4;  // rows of a tile; its 64 numbers a row are 128 bytes

__device__ uint32_t shared(const void *p) { return (uint32_t)__cvta_generic_to_shared(p); }

// Four 8 x 8 matrices; lane l names row l % 8 of matrix l / 8, and gets two neighbours of row l / 4 of each.
__device__ void ldmatrix(uint32_t (&r)[4], const void *row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(shared(row)) : "memory");
}

// 16 x 16 of a times 16 x 8 of b.
__device__ void mma(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
                 "{%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// A row has eight chunks of 16 bytes; chunk i of row r lies in place i ^ (r % 8): eight rows of a column touch all banks once.
__device__ unsigned char *place(unsigned char *tile, int row, int chunk) { return tile + 128 * row + 16 * (chunk ^ row % 8); }

// 64 rows of 64 numbers, eight a thread and step; what lies outside comes as zeros.
__device__ void fill(unsigned char *tile, const __nv_bfloat16 *matrix, int row, int rows, int first, int k) {
    for (int i = threadIdx.x; i < side * 8; i += 128) {
        const int r = i / 8, at = first + i % 8 * 8;
        uint4 eight = make_uint4(0, 0, 0, 0);
        if (row + r < rows && at < k) eight = *reinterpret_cast<const uint4 *>(matrix + (int64_t)(row + r) * k + at);
        *reinterpret_cast<uint4 *>(place(tile, r, i % 8)) = eight;
    }
}

// A warp's 32 x 32 from 64 numbers of each row.
__device__ void multiply(float (&d)[2][4][4], unsigned char *left, unsigned char *right, int down, int across, int lane) {
#pragma unroll
    for (int s = 0; s < 4; ++s) {
        uint32_t x[2][4], y[2][4];
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            ldmatrix(x[i], place(left, down + 16 * i + lane % 16, 2 * s + lane / 16));
            ldmatrix(y[i], place(right, across + 16 * i + lane / 16 * 8 + lane % 8, 2 * s + lane / 8 % 2));
        }
#pragma unroll
        for (int i = 0; i < 8; ++i) mma(d[i / 4][i % 4], x[i / 4], y[i % 4 / 2][i % 2 * 2], y[i % 4 / 2][i % 2 * 2 + 1]);
    }
}

__device__ void tile_of(__nv_bfloat16 *c, const __nv_bfloat16 *a, const __nv_bfloat16 *b, int m, int n, int k, int row,
                        int column) {
    __shared__ alignas(128) unsigned char left[side * 128], right[side * 128];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, down = warp / 2 * 32, across = warp % 2 * 32;
    float d[2][4][4] = {};
    for (int first = 0; first < k; first += 64) {
        fill(left, a, row, m, first, k);
        fill(right, b, column, n, first, k);
        __syncthreads();
        multiply(d, left, right, down, across, lane);
        __syncthreads();
    }
    // A thread holds two neighbours of a row, and two of the row eight below.
#pragma unroll
    for (int i = 0; i < 16; ++i) {
        const int r = row + down + i / 8 * 16 + i % 2 * 8 + lane / 4, at = column + across + i / 2 % 4 * 8 + lane % 4 * 2;
        const float *two = d[i / 8][i / 2 % 4] + i % 2 * 2;
        if (r < m && at < n)
            *reinterpret_cast<__nv_bfloat162 *>(c + (int64_t)r * n + at) = __floats2bfloat162_rn(two[0], two[1]);
    }
}

// Blocks stay, and take one tile in gridDim.x. Tiles are numbered down a band of `group` rows of tiles, then in the next column:
// what runs at the same time shares its rows of a and its columns of b.
__global__ void __launch_bounds__(128) stay(__nv_bfloat16 *c, const __nv_bfloat16 *a, const __nv_bfloat16 *b, int m, int n, int k) {
    const int rows = (m + side - 1) / side, columns = (n + side - 1) / side;
    for (int t = blockIdx.x; t < rows * columns; t += gridDim.x) {
        const int band = t / (group * columns), within = t % (group * columns), high = min(group, rows - band * group);
        tile_of(c, a, b, m, n, k, (band * group + within % high) * side, within / high * side);
    }
}

}  // namespace

extern "C" void product(__nv_bfloat16 *c, const __nv_bfloat16 *a, const __nv_bfloat16 *b, int64_t m, int64_t n, int64_t k,
                        cudaStream_t stream) {
    int processors = 108, together = 1;
    cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, 0);
    cudaOccupancyMaxActiveBlocksPerMultiprocessor(&together, stay, 128, 0);
    stay<<<processors * together, 128, 0, stream>>>(c, a, b, (int)m, (int)n, (int)k);
}
