// Copies a tile of `rows` by `columns` elements from a matrix with rows of `stride` elements into fast memory, by all threads of
// the block together: neighbouring threads copy neighbouring elements. No barrier stands behind it.
template <int rows, int columns, typename T>
__device__ __forceinline__ void copy_tile(T *tile, const T *from, int stride) {
    const int threads = blockDim.x * blockDim.y, first = threadIdx.y * blockDim.x + threadIdx.x;
    for (int at = first; at < rows * columns; at += threads) tile[at] = from[(at / columns) * stride + at % columns];
}
