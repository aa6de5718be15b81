// out = scale * x + y in a loop over the grid, eight numbers of two bytes in one load of 16 bytes. Compiled for gfx950 and not
// run.

namespace {

typedef __bf16 eight __attribute__((ext_vector_type(8)));

__global__ __launch_bounds__(256) void combine(__bf16 *out, const __bf16 *x, const __bf16 *y, float scale, int64_t count) {
    const int64_t thread = (int64_t)blockIdx.x * blockDim.x + threadIdx.x, threads = (int64_t)gridDim.x * blockDim.x;
    // Pointers that are no multiples of 16 bytes go number by number.
    const uintptr_t ends = (uintptr_t)out | (uintptr_t)x | (uintptr_t)y;
    const int64_t whole = ends % 16 == 0 ? count / 8 : 0;
    for (int64_t at = thread; at < whole; at += threads) {
        const eight left = reinterpret_cast<const eight *>(x)[at], right = reinterpret_cast<const eight *>(y)[at];
        eight sum;
        for (int i = 0; i < 8; ++i) sum[i] = (__bf16)fmaf(scale, (float)left[i], (float)right[i]);
        reinterpret_cast<eight *>(out)[at] = sum;
    }
    for (int64_t at = 8 * whole + thread; at < count; at += threads) out[at] = (__bf16)fmaf(scale, (float)x[at], (float)y[at]);
}

}  // namespace

extern "C" void scale_and_add(__bf16 *out, const __bf16 *x, const __bf16 *y, float scale, int64_t count, hipStream_t stream) {
    // Eight blocks for each of 256 compute units.
    combine<<<2048, 256, 0, stream>>>(out, x, y, scale, count);
}
