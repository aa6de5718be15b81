#include <cuda_bf16.h>
// A number in single precision as the sum of three in bfloat16, the largest first, none of which is further from zero than what is
// left of the number. The sum is exact for numbers of at least 2^-110; behind infinity stand NaNs.
__device__ __forceinline__ void bf16_parts(float value, __nv_bfloat16 (&parts)[3]) {
#pragma unroll
    for (int i = 0; i < 3; ++i) {
        const unsigned upper = __float_as_uint(value) & 0xffff0000u;
        parts[i] = __ushort_as_bfloat16(static_cast<unsigned short>(upper >> 16));
        value -= __uint_as_float(upper);
    }
}
// Of the nine products of two numbers' parts the six largest, numbered from the smallest on: which part of the first number, and
// which of the second, is in it. Each of the other three is below 2^-22 of the numbers' product, together they are below 2^-20.
constexpr int PART_PRODUCTS = 6;
__host__ __device__ constexpr int part_of_first(int product) {
    return product == 0 ? 2 : product == 2 || product == 3 ? 1 : 0;
}
__host__ __device__ constexpr int part_of_second(int product) {
    return product == 1 ? 2 : product == 2 || product == 4 ? 1 : 0;
}
