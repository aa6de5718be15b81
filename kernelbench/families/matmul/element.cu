// An element a thread; blocks of {{ across }} x {{ down }}, unrolled by {{ unroll }}{% if turned %}, neighbouring threads in neighbouring rows{% endif %}.
#include <cuda_fp16.h>
#include <stdint.h>

namespace {

__global__ void element(float *c, const __half *a, const __half *b, int n, int k) {
    const int along = blockIdx.x * {{ across }} + threadIdx.x, beside = blockIdx.y * {{ down }} + threadIdx.y;
{%- if turned %}
    const int row = along, column = beside;
{%- else %}
    const int row = beside, column = along;
{%- endif %}
    float sum = 0;
#pragma unroll {{ unroll }}
    for (int i = 0; i < k; ++i) {
        sum += __half2float(a[row * k + i]) * __half2float(b[i * n + column]);
    }
    c[row * n + column] = sum;
}

}  // namespace

extern "C" void matmul(float *c, const __half *a, const __half *b, int32_t m, int32_t n, int32_t k, cudaStream_t stream) {
{%- if turned %}
    const dim3 grid(m / {{ across }}, n / {{ down }});
{%- else %}
    const dim3 grid(n / {{ across }}, m / {{ down }});
{%- endif %}
    element<<<grid, dim3({{ across }}, {{ down }}), 0, stream>>>(c, a, b, n, k);
}
