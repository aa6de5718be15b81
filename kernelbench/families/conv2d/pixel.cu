// A pixel of one filter a thread, {{ threads }} threads a block{% if filters_first %}, neighbouring threads in neighbouring filters{% endif %}{% if weights_shared %}, weights in shared memory{% endif %}.
#include <stdint.h>

namespace {

constexpr int THREADS = {{ threads }};

__global__ void __launch_bounds__(THREADS) pixel(float *y, const float *x, const float *w, int channels, int filters,
                                                 int height, int width) {
    const int at = blockIdx.x * THREADS + threadIdx.x, pixels = height * width, image = blockIdx.z;
{%- if filters_first %}
    const bool inside = at < pixels * filters;
    const int filter = inside ? at % filters : 0, place = inside ? at / filters : 0;
{%- else %}
    const bool inside = at < pixels;
    const int filter = blockIdx.y, place = inside ? at : 0;
{%- endif %}
    const int row = place / width, column = place % width;
    float sum = 0;
{%- if weights_shared %}
    __shared__ float held[16][{% if filters_first %}THREADS][9]{% else %}9]{% endif %};
{%- endif %}
    for (int from = 0; from < channels; from += 16) {
{%- if weights_shared %}
        __syncthreads();
{%- if filters_first %}
        for (int i = 0; i < 16 * 9; ++i) {
            held[i / 9][threadIdx.x][i % 9] = w[(filter * channels + from) * 9 + i];
        }
{%- else %}
        for (int i = threadIdx.x; i < 16 * 9; i += THREADS) {
            held[i / 9][i % 9] = w[(filter * channels + from) * 9 + i];
        }
{%- endif %}
        __syncthreads();
{%- endif %}
#pragma unroll {{ unroll }}
        for (int c = 0; c < 16; ++c) {
            for (int r = 0; r < 3; ++r) {
                for (int s = 0; s < 3; ++s) {
                    const int h = row + r - 1, v = column + s - 1;
                    if (h >= 0 && h < height && v >= 0 && v < width) {
{%- if not weights_shared %}
                        const float weight = w[(filter * channels + from + c) * 9 + r * 3 + s];
{%- elif filters_first %}
                        const float weight = held[c][threadIdx.x][r * 3 + s];
{%- else %}
                        const float weight = held[c][r * 3 + s];
{%- endif %}
                        sum += x[((image * channels + from + c) * height + h) * width + v] * weight;
                    }
                }
            }
        }
    }
    if (inside) {
        y[(image * filters + filter) * pixels + place] = sum;
    }
}

}  // namespace

extern "C" void conv2d(float *y, const float *x, const float *w, int32_t images, int32_t channels, int32_t filters,
                       int32_t height, int32_t width, cudaStream_t stream) {
    const int pixels = height * width;
{%- if filters_first %}
    const dim3 grid((pixels * filters + THREADS - 1) / THREADS, 1, images);
{%- else %}
    const dim3 grid((pixels + THREADS - 1) / THREADS, filters, images);
{%- endif %}
    pixel<<<grid, THREADS, 0, stream>>>(y, x, w, channels, filters, height, width);
}
