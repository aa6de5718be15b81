// c = a * transpose(b) without the matrix unit: a block of 256 threads keeps tiles of 16 x 16 numbers in LDS, one thread an
// element.

namespace {

constexpr int SIDE = 16;

__global__ void tiles(__bf16 *c, const __bf16 *a, const __bf16 *b, int64_t m, int64_t n, int64_t k) {
    // One column more than a row has keeps its columns in different banks.
    __shared__ float left[SIDE][SIDE + 1], right[SIDE][SIDE + 1];
    const int x = threadIdx.x, y = threadIdx.y;
    const int64_t row = (int64_t)blockIdx.y * SIDE + y, column = (int64_t)blockIdx.x * SIDE + x;
    const int64_t other = (int64_t)blockIdx.x * SIDE + y;
    float sum = 0.0f;
    for (int64_t k0 = 0; k0 < k; k0 += SIDE) {
        left[y][x] = row < m && k0 + x < k ? (float)a[row * k + k0 + x] : 0.0f;
        right[y][x] = other < n && k0 + x < k ? (float)b[other * k + k0 + x] : 0.0f;
        __syncthreads();
        for (int i = 0; i < SIDE; ++i) sum = fmaf(left[y][i], right[x][i], sum);
        __syncthreads();
    }
    if (row < m && column < n) c[row * n + column] = (__bf16)sum;
}

}  // namespace

extern "C" void product(__bf16 *c, const __bf16 *a, const __bf16 *b, int64_t m, int64_t n, int64_t k, hipStream_t stream) {
    const dim3 grid((unsigned)((n + SIDE - 1) / SIDE), (unsigned)((m + SIDE - 1) / SIDE));
    tiles<<<grid, dim3(SIDE, SIDE), 0, stream>>>(c, a, b, m, n, k);
}
