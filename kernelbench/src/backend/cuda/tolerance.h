// The rule of comparison, for the GPU and for a host's compiler alike: is an element that was put out right?
//
// |got - right| <= atol + rtol * |right| in double precision, each operation rounded; NaN never is, and an infinity
// only beside the same infinity. tests/comparison/cases.json says what that means case by case, for every
// implementation of it.
#pragma once
#include <math.h>
#include <stdint.h>
#include <string.h>

#ifdef __CUDACC__
#define EVERYWHERE static __host__ __device__ inline
#else
#define EVERYWHERE static inline
#endif

typedef unsigned long long u64;

enum { F32, F64, F16, BF16, I32, I64, E4M3 };

EVERYWHERE u64 size_of(u64 dtype) {
    return dtype == E4M3 ? 1 : dtype == F16 || dtype == BF16 ? 2 : dtype == F32 || dtype == I32 ? 4 : 8;
}

EVERYWHERE float as_float(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

// A half or a bfloat16.
EVERYWHERE float widened(uint16_t bits, u64 dtype) {
    if (dtype == BF16) return as_float((uint32_t)bits << 16);
    const uint32_t sign = (uint32_t)(bits & 0x8000) << 16, exponent = (bits >> 10) & 31, fraction = bits & 1023;
    if (exponent == 0) {
        const float small = (float)fraction * 0x1p-24f;
        return sign ? -small : small;
    }
    return as_float(sign | (exponent == 31 ? 255u << 23 : (exponent + 112) << 23) | fraction << 13);
}

// Eight bits, OCP's E4M3.
EVERYWHERE float widened_e4m3(uint8_t bits) {
    const uint32_t sign = (uint32_t)(bits & 0x80) << 24, exponent = (bits >> 3) & 15, fraction = bits & 7;
    if ((bits & 0x7f) == 0x7f) return as_float(0x7fc00000);
    if (exponent == 0) {
        const float small = (float)fraction * 0x1p-9f;
        return sign ? -small : small;
    }
    return as_float(sign | (exponent + 120) << 23 | fraction << 20);
}

EVERYWHERE double as_number(const unsigned char *place, u64 dtype) {
    switch (dtype) {
        case F32: return *(const float *)place;
        case F64: return *(const double *)place;
        case I32: return *(const int32_t *)place;
        case I64: return (double)*(const long long *)place;
        case E4M3: return widened_e4m3(*place);
        default: return widened(*(const uint16_t *)place, dtype);
    }
}

// What is allowed beside a number of this size. The compiler for the GPU would round once.
EVERYWHERE double allowed(double size, double atol, double rtol) {
#ifdef __CUDA_ARCH__
    return __dadd_rn(atol, __dmul_rn(rtol, size));
#else
    return atol + rtol * size;
#endif
}

EVERYWHERE bool is_wrong(const unsigned char *right, const unsigned char *got, u64 dtype, double atol, double rtol) {
    if (dtype == I64) {
        const long long r = *(const long long *)right, c = *(const long long *)got;
        const u64 apart = c > r ? (u64)c - (u64)r : (u64)r - (u64)c;
        return (double)apart > allowed(r < 0 ? (double)(0 - (u64)r) : (double)r, atol, rtol);
    }
    const double r = as_number(right, dtype), c = as_number(got, dtype);
    if (isnan(r) || isnan(c)) return true;
    if (isinf(r) || isinf(c)) return r != c;
    return fabs(c - r) > allowed(fabs(r), atol, rtol);
}
