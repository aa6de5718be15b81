// A 3 x 3 convolution, a pixel of one filter a thread.
#include <stdint.h>

namespace {

__global__ void pixel(float *y, const float *x, const float *w, int channels, int filters, int height, int width) {
    const int column = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y * blockDim.y + threadIdx.y;
    const int filter = blockIdx.z % filters, image = blockIdx.z / filters;
    if (row >= height || column >= width) {
        return;
    }
    float sum = 0;
    for (int c = 0; c < channels; ++c) {
        for (int r = 0; r < 3; ++r) {
            for (int s = 0; s < 3; ++s) {
                const int h = row + r - 1, v = column + s - 1;
                if (h >= 0 && h < height && v >= 0 && v < width) {
                    sum += x[((image * channels + c) * height + h) * width + v] * w[((filter * channels + c) * 3 + r) * 3 + s];
                }
            }
        }
    }
    y[((image * filters + filter) * height + row) * width + column] = sum;
}

}  // namespace

extern "C" void conv2d(float *y, const float *x, const float *w, int32_t images, int32_t channels, int32_t filters,
                       int32_t height, int32_t width, cudaStream_t stream) {
    const dim3 grid((width + 31) / 32, (height + 7) / 8, images * filters);
    pixel<<<grid, dim3(32, 8), 0, stream>>>(y, x, w, channels, filters, height, width);
}
