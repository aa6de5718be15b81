// y = x * f: one output element a thread, sums in single precision.
static __global__ void convolved({{ element }} *y, const {{ element }} *x, const {{ element }} *f, int64_t all, int64_t channels, int64_t height,
                                 int64_t width, int64_t filters, int64_t rows, int64_t columns, int64_t stride, int64_t pad, int64_t high,
                                 int64_t wide) {
    const int64_t at = blockIdx.x * 256ll + threadIdx.x;
    if (at >= all) return;
    const int64_t ox = at % wide, oy = at / wide % high, filter = at / wide / high % filters, image = at / wide / high / filters;
    float sum = 0.0f;
    for (int64_t channel = 0; channel < channels; ++channel)
        for (int64_t r = 0; r < rows; ++r)
            for (int64_t s = 0; s < columns; ++s) {
                const int64_t iy = oy * stride + r - pad, ix = ox * stride + s - pad;
                if (iy < 0 || iy >= height || ix < 0 || ix >= width) continue;
                sum += (float)x[((image * channels + channel) * height + iy) * width + ix] *
                       (float)f[((filter * channels + channel) * rows + r) * columns + s];
            }
    y[at] = ({{ element }})sum;
}

extern "C" int conv2d({{ element }} *y, const {{ element }} *x, const {{ element }} *f, int64_t batch, int64_t channels, int64_t height,
                      int64_t width, int64_t filters, int64_t rows, int64_t columns, int64_t stride, int64_t pad, cudaStream_t stream) {
    const int64_t high = (height + 2 * pad - rows) / stride + 1, wide = (width + 2 * pad - columns) / stride + 1;
    const int64_t all = batch * filters * high * wide;
    convolved<<<(unsigned)((all + 255) / 256), 256, 0, stream>>>(y, x, f, all, channels, height, width, filters, rows, columns, stride, pad,
                                                                  high, wide);
    return (int)cudaGetLastError();
}
