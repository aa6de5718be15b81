// c = a * b, row by row: one element a thread, tiles of 16 x 16 in shared memory, sums in single precision.
static __global__ void product({{ element }} *c, const {{ element }} *a, const {{ element }} *b, int64_t m, int64_t n, int64_t k) {
    __shared__ float left[16][17], right[16][17];
    const int64_t row = blockIdx.y * 16ll + threadIdx.y, column = blockIdx.x * 16ll + threadIdx.x;
    float sum = 0.0f;
    for (int64_t at = 0; at < k; at += 16) {
        left[threadIdx.y][threadIdx.x] = row < m && at + threadIdx.x < k ? (float)a[row * k + at + threadIdx.x] : 0.0f;
        right[threadIdx.y][threadIdx.x] = at + threadIdx.y < k && column < n ? (float)b[(at + threadIdx.y) * n + column] : 0.0f;
        __syncthreads();
        for (int p = 0; p < 16; ++p) sum += left[threadIdx.y][p] * right[p][threadIdx.x];
        __syncthreads();
    }
    if (row < m && column < n) c[row * n + column] = ({{ element }})sum;
}

extern "C" int gemm({{ element }} *c, const {{ element }} *a, const {{ element }} *b, int64_t m, int64_t n, int64_t k, cudaStream_t stream) {
    const dim3 grid((unsigned)((n + 15) / 16), (unsigned)((m + 15) / 16)), block(16, 16);
    product<<<grid, block, 0, stream>>>(c, a, b, m, n, k);
    return (int)cudaGetLastError();
}
