// Copies a tile of `rows` by `columns` elements into the array `tile` in fast memory, from the matrix `from` with rows of `stride`
// elements, whose element `first` is the tile's first. All `threads` threads of the group do it together, each with its number
// `thread` from 0: neighbouring threads copy neighbouring elements. No barrier stands behind it.
#define COPY_TILE(tile, rows, columns, from, first, stride, thread, threads) \
    for (uint copied = (thread); copied < (uint)((rows) * (columns)); copied += (threads)) \
        tile[copied] = from[(first) + (copied / (columns)) * (stride) + copied % (columns)]
