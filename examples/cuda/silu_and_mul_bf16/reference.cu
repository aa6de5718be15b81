// out[t][i] = SiLU(x[t][i]) * g[t][i], where a row of the input is x followed by g. One block a row.
#include <cuda_bf16.h>
#include <stdint.h>

namespace {

__global__ void rows(__nv_bfloat16 *out, const __nv_bfloat16 *input, int64_t hidden) {
    const __nv_bfloat16 *x = input + (int64_t)blockIdx.x * 2 * hidden;
    const __nv_bfloat16 *gate = x + hidden;
    for (int64_t i = threadIdx.x; i < hidden; i += blockDim.x) {
        const float z = __bfloat162float(x[i]);
        const float silu = z / (1.0f + expf(-z));
        out[blockIdx.x * hidden + i] = __float2bfloat16_rn(silu * __bfloat162float(gate[i]));
    }
}

}  // namespace

extern "C" void silu_and_mul(__nv_bfloat16 *out, const __nv_bfloat16 *input, int64_t tokens, int64_t hidden, cudaStream_t stream) {
    rows<<<(unsigned)tokens, 1024, 0, stream>>>(out, input, hidden);
}
