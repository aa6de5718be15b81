#include <mma.h>
// A warp's fragments of 16 by 16: two factors in half precision, row by row, and their sum in single precision.
using FragmentA = nvcuda::wmma::fragment<nvcuda::wmma::matrix_a, 16, 16, 16, __half, nvcuda::wmma::row_major>;
using FragmentB = nvcuda::wmma::fragment<nvcuda::wmma::matrix_b, 16, 16, 16, __half, nvcuda::wmma::row_major>;
using FragmentC = nvcuda::wmma::fragment<nvcuda::wmma::accumulator, 16, 16, 16, float>;
// Sets all sums to zero.
__device__ __forceinline__ void fragment_clear(FragmentC &sum) { nvcuda::wmma::fill_fragment(sum, 0.0f); }
// Loads a factor from fast memory with rows of `stride` elements, a multiple of 8.
template <typename Fragment>
__device__ __forceinline__ void fragment_load(Fragment &factor, const __half *from, unsigned stride) {
    nvcuda::wmma::load_matrix_sync(factor, from, stride);
}
// sum += a * b
__device__ __forceinline__ void fragment_multiply(FragmentC &sum, const FragmentA &a, const FragmentB &b) {
    nvcuda::wmma::mma_sync(sum, a, b, sum);
}
// Stores the sums with rows of `stride` elements, a multiple of 4.
__device__ __forceinline__ void fragment_store(float *to, const FragmentC &sum, unsigned stride) {
    nvcuda::wmma::store_matrix_sync(to, sum, stride, nvcuda::wmma::mem_row_major);
}
