// The same by im2col and OpenBLAS, through its interface for C: row-major is 101, not transposed is 111. Where no filter reaches
// a neighbour, the image is the matrix already; else rows of the output are taken together until their matrix has 8 MiB. It lies
// where the last call's lay.
#include <cstdlib>

extern "C" void cblas_sgemm(int order, int transposed_a, int transposed_b, int m, int n, int k, float alpha, const float *a,
                            int lda, const float *b, int ldb, float beta, float *c, int ldc);

namespace {

float *matrix = nullptr;
int64_t room = 0;

// Rows of the output from `top` up to `bottom`.
void im2col(const float *x, int64_t channels, int64_t height, int64_t width, int64_t rows, int64_t columns, int64_t stride,
            int64_t pad, int64_t top, int64_t bottom, int64_t wide) {
    float *to = matrix;
    for (int64_t channel = 0; channel < channels; ++channel)
        for (int64_t r = 0; r < rows; ++r)
            for (int64_t s = 0; s < columns; ++s)
                for (int64_t oy = top; oy < bottom; ++oy, to += wide) {
                    const int64_t iy = oy * stride + r - pad;
                    if (iy < 0 || iy >= height) {
                        for (int64_t ox = 0; ox < wide; ++ox) to[ox] = 0.0f;
                        continue;
                    }
                    const float *from = x + (channel * height + iy) * width;
                    // Those of the row that lie within the image.
                    const int64_t shift = s - pad;
                    int64_t first = shift >= 0 ? 0 : (-shift + stride - 1) / stride;
                    int64_t last = width > shift ? (width - 1 - shift) / stride + 1 : 0;
                    first = first < wide ? first : wide;
                    last = last < wide ? last : wide;
                    last = last > first ? last : first;
                    for (int64_t ox = 0; ox < first; ++ox) to[ox] = 0.0f;
                    for (int64_t ox = first; ox < last; ++ox) to[ox] = from[ox * stride + shift];
                    for (int64_t ox = last; ox < wide; ++ox) to[ox] = 0.0f;
                }
}

}  // namespace

extern "C" void conv2d(float *y, const float *x, const float *f, int64_t batch, int64_t channels, int64_t height, int64_t width,
                       int64_t filters, int64_t rows, int64_t columns, int64_t stride, int64_t pad) {
    const int64_t high = (height + 2 * pad - rows) / stride + 1, wide = (width + 2 * pad - columns) / stride + 1;
    const int64_t sums = channels * rows * columns, pixels = high * wide;
    const bool is_matrix = rows == 1 && columns == 1 && stride == 1 && pad == 0;
    int64_t together = is_matrix ? high : (8 << 20) / (int64_t)sizeof(float) / (sums * wide);
    together = together < 1 ? 1 : together > high ? high : together;
    if (!is_matrix && room < sums * together * wide) {
        std::free(matrix);
        room = sums * together * wide;
        matrix = static_cast<float *>(std::malloc(static_cast<size_t>(room) * sizeof(float)));
        if (!matrix) std::abort();
    }
    for (int64_t image = 0; image < batch; ++image) {
        const float *own = x + image * channels * height * width;
        for (int64_t top = 0; top < high; top += together) {
            const int64_t bottom = top + together < high ? top + together : high, part = (bottom - top) * wide;
            if (!is_matrix) im2col(own, channels, height, width, rows, columns, stride, pad, top, bottom, wide);
            cblas_sgemm(101, 111, 111, (int)filters, (int)part, (int)sums, 1.0f, f, (int)sums, is_matrix ? own : matrix, (int)part,
                        0.0f, y + image * filters * pixels + top * wide, (int)pixels);
        }
    }
}
