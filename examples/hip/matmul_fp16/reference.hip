// c = a * b, all n x n and row by row: one thread an element of c.
// region: macros
// region: device
__global__ static void product(__half *c, const __half *a, const __half *b, int n) {
    int row = blockIdx.y * blockDim.y + threadIdx.y, column = blockIdx.x * blockDim.x + threadIdx.x;
    float sum = 0.0f;
    for (int k = 0; k < n; ++k) sum += __half2float(a[row * n + k]) * __half2float(b[k * n + column]);
    c[row * n + column] = __float2half(sum);
}
// region: host
extern "C" int matmul(__half *c, const __half *a, const __half *b, int32_t n, hipStream_t stream) {
    dim3 block({{BLOCK_X}}, {{BLOCK_Y}});
    if (n % block.x != 0 || n % block.y != 0) return WS_INVALID;
    dim3 grid(n / block.x, n / block.y);
    product<<<grid, block, 0, stream>>>(c, a, b, n);
    return 0;
}
