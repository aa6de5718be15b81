// c = a * b^T, all n x n and row by row: one thread an element of c.
// region: macros
// region: device
__global__ static void product(__nv_bfloat16 *c, const __nv_fp8_e4m3 *a, const __nv_fp8_e4m3 *b, int n) {
    int row = blockIdx.y * blockDim.y + threadIdx.y, column = blockIdx.x * blockDim.x + threadIdx.x;
    float sum = 0.0f;
    for (int k = 0; k < n; ++k) sum += float(a[row * n + k]) * float(b[column * n + k]);
    c[row * n + column] = __float2bfloat16_rn(sum);
}
// region: host
extern "C" int matmul(__nv_bfloat16 *c, const __nv_fp8_e4m3 *a, const __nv_fp8_e4m3 *b, int32_t n, cudaStream_t stream) {
    dim3 block({{BLOCK_X}}, {{BLOCK_Y}});
    if (n % block.x != 0 || n % block.y != 0) return WS_INVALID;
    dim3 grid(n / block.x, n / block.y);
    product<<<grid, block, 0, stream>>>(c, a, b, n);
    return 0;
}
