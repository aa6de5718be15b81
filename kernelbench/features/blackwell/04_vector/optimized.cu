// out = scale * x + y, eight numbers a thread and step, as one uint4: each access of a warp is 512 bytes, all of them used.
#include <cuda_bf16.h>
#include <stdint.h>

namespace {

__device__ float2 pair(uint32_t bits) { return __bfloat1622float2(*reinterpret_cast<const __nv_bfloat162 *>(&bits)); }

// Two numbers of each, scaled and added.
__device__ uint32_t two(uint32_t x, uint32_t y, float scale) {
    const float2 a = pair(x), b = pair(y);
    const __nv_bfloat162 sum = __floats2bfloat162_rn(fmaf(scale, a.x, b.x), fmaf(scale, a.y, b.y));
    return *reinterpret_cast<const uint32_t *>(&sum);
}

__global__ void __launch_bounds__(256) vectors(__nv_bfloat16 *out, const __nv_bfloat16 *x, const __nv_bfloat16 *y, float scale,
                                               int64_t count) {
    const int64_t stride = (int64_t)gridDim.x * blockDim.x, first = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    const int64_t whole = count / 8;
    const uint4 *xs = reinterpret_cast<const uint4 *>(x), *ys = reinterpret_cast<const uint4 *>(y);
    uint4 *outs = reinterpret_cast<uint4 *>(out);
    for (int64_t i = first; i < whole; i += stride) {
        const uint4 a = xs[i], b = ys[i];
        outs[i] = make_uint4(two(a.x, b.x, scale), two(a.y, b.y, scale), two(a.z, b.z, scale), two(a.w, b.w, scale));
    }
    // What does not fill a vector: at most seven numbers, one a thread.
    const int64_t rest = whole * 8 + first;
    if (rest < count) out[rest] = __float2bfloat16_rn(fmaf(scale, __bfloat162float(x[rest]), __bfloat162float(y[rest])));
}

}  // namespace

extern "C" void scale_and_add(__nv_bfloat16 *out, const __nv_bfloat16 *x, const __nv_bfloat16 *y, float scale, int64_t count,
                              cudaStream_t stream) {
    vectors<<<148 * 8, 256, 0, stream>>>(out, x, y, scale, count);
}
