// A wavefront's fragments of 16 by 16: two factors of one type, `float` or `_Float16`, and their sum in single precision.
template <typename T> struct Fragment {
    typedef T Elements __attribute__((ext_vector_type(4)));
    Elements at;
};
using FragmentC = Fragment<float>;
// Sets all sums to zero.
__device__ __forceinline__ void fragment_clear(FragmentC &sum) { sum.at = 0.0f; }
// Loads the first factor from fast memory with rows of `stride` elements.
template <typename T, typename From>
__device__ __forceinline__ void fragment_load_a(Fragment<T> &factor, const From *from, int stride) {
    const int row = __lane_id() % 16, first = __lane_id() / 16 * 4;
    for (int i = 0; i < 4; ++i) factor.at[i] = static_cast<T>(from[row * stride + first + i]);
}
// Loads the second factor from fast memory with rows of `stride` elements.
template <typename T, typename From>
__device__ __forceinline__ void fragment_load_b(Fragment<T> &factor, const From *from, int stride) {
    const int column = __lane_id() % 16, first = __lane_id() / 16 * 4;
    for (int i = 0; i < 4; ++i) factor.at[i] = static_cast<T>(from[(first + i) * stride + column]);
}
// sum += a * b
__device__ __forceinline__ void fragment_multiply(FragmentC &sum, const Fragment<_Float16> &a, const Fragment<_Float16> &b) {
    sum.at = __builtin_amdgcn_mfma_f32_16x16x16f16(a.at, b.at, sum.at, 0, 0, 0);
}
// sum += a * b
__device__ __forceinline__ void fragment_multiply(FragmentC &sum, const Fragment<float> &a, const Fragment<float> &b) {
    for (int i = 0; i < 4; ++i) sum.at = __builtin_amdgcn_mfma_f32_16x16x4f32(a.at[i], b.at[i], sum.at, 0, 0, 0);
}
// Stores the sums with rows of `stride` elements.
template <typename To> __device__ __forceinline__ void fragment_store(To *to, const FragmentC &sum, int stride) {
    const int column = __lane_id() % 16, first = __lane_id() / 16 * 4;
    for (int i = 0; i < 4; ++i) to[(first + i) * stride + column] = static_cast<To>(sum.at[i]);
}
