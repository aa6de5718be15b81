#include <cuda.h>
#include <type_traits>
// Describes a matrix of __half or __nv_bfloat16, row by row, to the copy engine, which copies boxes of `box_rows` rows (at most 256)
// by 64 columns: on the host. The kernel takes it as `const __grid_constant__ CUtensorMap`. Whether that went well.
template <class Element> inline bool tensor_map(CUtensorMap *map, const Element *matrix, int rows, int columns, int box_rows) {
    static void *found = nullptr;
    cudaDriverEntryPointQueryResult status;
    if (!found) cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found, 12000, cudaEnableDefault, &status);
    if (!found) return false;
    static_assert(std::is_same_v<Element, __half> || std::is_same_v<Element, __nv_bfloat16>);
    const auto kind = std::is_same_v<Element, __half> ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16 : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
    const cuuint64_t sizes[] = {static_cast<cuuint64_t>(columns), static_cast<cuuint64_t>(rows)};
    const cuuint64_t stride[] = {static_cast<cuuint64_t>(columns) * sizeof(Element)};
    const cuuint32_t box[] = {64, static_cast<cuuint32_t>(box_rows)}, step[] = {1, 1};
    return reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(found)(
               map, kind, 2, const_cast<Element *>(matrix), sizes, stride, box, step,
               CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
               CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}
// Begins the copy of a tile of `rows` by `columns` elements from this row and column of a matrix described with boxes of `rows` rows,
// in the layout of `swizzled`: one thread. Its rows * columns * 2 bytes arrive at the barrier, which has to expect them.
template <int rows, int columns, class Element>
__device__ __forceinline__ void bulk_load(Element *tile, const CUtensorMap *map, int row, int column, Barrier *barrier) {
    const unsigned at = static_cast<unsigned>(__cvta_generic_to_shared(barrier));
#pragma unroll
    for (int chunk = 0; chunk < columns / 64; ++chunk) {
        const unsigned to = static_cast<unsigned>(__cvta_generic_to_shared(tile + chunk * rows * 64));
        asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::
                         "r"(to), "l"(map), "r"(column + chunk * 64), "r"(row), "r"(at) : "memory");
    }
}
