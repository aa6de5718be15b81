// Copies a tile of `rows` by `columns` elements from a matrix with rows of `stride` elements into a local array.
template <int rows, int columns>
static inline void copy_tile(float *tile, const float *from, int64_t stride) {
    for (int row = 0; row < rows; ++row)
        for (int column = 0; column < columns; ++column) tile[row * columns + column] = from[row * stride + column];
}
