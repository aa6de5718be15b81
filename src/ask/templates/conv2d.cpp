// y = x * f: for each output row one pass over the input rows under it, innermost along the row.
extern "C" void conv2d(float *y, const float *x, const float *f, int64_t batch, int64_t channels, int64_t height, int64_t width,
                       int64_t filters, int64_t rows, int64_t columns, int64_t stride, int64_t pad) {
    const int64_t high = (height + 2 * pad - rows) / stride + 1, wide = (width + 2 * pad - columns) / stride + 1;
    for (int64_t image = 0; image < batch; ++image)
        for (int64_t filter = 0; filter < filters; ++filter)
            for (int64_t oy = 0; oy < high; ++oy) {
                float *__restrict out = y + ((image * filters + filter) * high + oy) * wide;
                for (int64_t ox = 0; ox < wide; ++ox) out[ox] = 0.0f;
                for (int64_t channel = 0; channel < channels; ++channel)
                    for (int64_t r = 0; r < rows; ++r) {
                        const int64_t iy = oy * stride + r - pad;
                        if (iy < 0 || iy >= height) continue;
                        const float *__restrict from = x + ((image * channels + channel) * height + iy) * width;
                        for (int64_t s = 0; s < columns; ++s) {
                            const float factor = f[((filter * channels + channel) * rows + r) * columns + s];
                            for (int64_t ox = 0; ox < wide; ++ox) {
                                const int64_t ix = ox * stride + s - pad;
                                if (ix >= 0 && ix < width) out[ox] += factor * from[ix];
                            }
                        }
                    }
            }
}
