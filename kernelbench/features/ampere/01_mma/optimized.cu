// c = a * transpose(b) by four warps a block, each 32 x 32 of the block's 64 x 64: ldmatrix takes both factors from shared memory
// in the order that the tensor cores want, and mma.sync m16n8k8 multiplies them into registers.
#include <cuda_bf16.h>
#include <stdint.h>

namespace {

constexpr int side = 64, depth = 32, pitch = depth + 8;  // rows of 80 bytes: eight of them touch all banks once

__device__ uint32_t shared(const void *p) { return (uint32_t)__cvta_generic_to_shared(p); }

// Four 8 x 8 matrices; lane l names row l % 8 of matrix l / 8, and gets two neighbours of row l / 4 of each.
__device__ void ldmatrix(uint32_t (&r)[4], const void *row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(shared(row)) : "memory");
}

// 16 x 8 of a times 8 x 8 of b.
__device__ void mma8(float (&d)[4], uint32_t a0, uint32_t a1, uint32_t b) {
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "r"(a0), "r"(a1), "r"(b));
}

// 64 rows of 32 numbers, eight a thread and step; what lies outside comes as zeros.
__device__ void fill(__nv_bfloat16 (*tile)[pitch], const __nv_bfloat16 *matrix, int row, int rows, int first, int k) {
    for (int i = threadIdx.x; i < side * depth / 8; i += 128) {
        const int r = i / (depth / 8), at = i % (depth / 8) * 8;
        uint4 eight = make_uint4(0, 0, 0, 0);
        if (row + r < rows && first + at < k)
            eight = *reinterpret_cast<const uint4 *>(matrix + (int64_t)(row + r) * k + first + at);
        *reinterpret_cast<uint4 *>(&tile[r][at]) = eight;
    }
}

__global__ void __launch_bounds__(128) warps(__nv_bfloat16 *c, const __nv_bfloat16 *a, const __nv_bfloat16 *b, int m, int n,
                                             int k) {
    __shared__ alignas(16) __nv_bfloat16 left[side][pitch], right[side][pitch];
    const int row = blockIdx.y * side, column = blockIdx.x * side, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int down = warp / 2 * 32, across = warp % 2 * 32;
    float d[2][4][4] = {};
    for (int first = 0; first < k; first += depth) {
        fill(left, a, row, m, first, k);
        fill(right, b, column, n, first, k);
        __syncthreads();
        uint32_t x[2][2][4], y[4][4];
#pragma unroll
        for (int i = 0; i < 2; ++i)
#pragma unroll
            for (int h = 0; h < 2; ++h) ldmatrix(x[i][h], &left[down + 16 * i + lane % 16][16 * h + lane / 16 * 8]);
#pragma unroll
        for (int j = 0; j < 4; ++j) ldmatrix(y[j], &right[across + 8 * j + lane % 8][lane / 8 * 8]);
#pragma unroll
        for (int s = 0; s < 4; ++s)
#pragma unroll
            for (int i = 0; i < 2; ++i)
#pragma unroll
                for (int j = 0; j < 4; ++j) mma8(d[i][j], x[i][s / 2][s % 2 * 2], x[i][s / 2][s % 2 * 2 + 1], y[j][s]);
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

}  // namespace

extern "C" void product(__nv_bfloat16 *c, const __nv_bfloat16 *a, const __nv_bfloat16 *b, int64_t m, int64_t n, int64_t k,
                        cudaStream_t stream) {
    const dim3 grid((unsigned)((n + side - 1) / side), (unsigned)((m + side - 1) / side));
    warps<<<grid, 128, 0, stream>>>(c, a, b, (int)m, (int)n, (int)k);
}
