// An element a thread, blocks of {{ across }} x {{ down }}; neighbouring threads {% if turned %}write{% else %}read{% endif %} side by side.
#include <stdint.h>

namespace {

__global__ void element(float *y, const float *x, int rows, int columns) {
    const int along = blockIdx.x * {{ across }} + threadIdx.x, beside = blockIdx.y * {{ down }} + threadIdx.y;
{%- if turned %}
    y[(int64_t)beside * rows + along] = x[(int64_t)along * columns + beside];
{%- else %}
    y[(int64_t)along * rows + beside] = x[(int64_t)beside * columns + along];
{%- endif %}
}

}  // namespace

extern "C" void transpose(float *y, const float *x, int32_t rows, int32_t columns, cudaStream_t stream) {
{%- if turned %}
    const dim3 grid(rows / {{ across }}, columns / {{ down }});
{%- else %}
    const dim3 grid(columns / {{ across }}, rows / {{ down }});
{%- endif %}
    element<<<grid, dim3({{ across }}, {{ down }}), 0, stream>>>(y, x, rows, columns);
}
