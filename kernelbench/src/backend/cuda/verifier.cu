// The trusted side's kernels: what arrays hold before a call, and what is wrong with them after it.
//
// The y index of a block is the slot. Every argument is 8 bytes wide.
#include "tolerance.h"

enum { ZEROS, ONES, UNIFORM, NORMAL, INTEGERS };

static __device__ u64 mixed(u64 x) {
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    return x ^ (x >> 31);
}

// An element's own random bits: a function of the slot's key and its index.
static __device__ u64 drawn(u64 key, u64 element) { return mixed(key + element * 0x9e3779b97f4a7c15ull); }

static __device__ double unit(u64 bits) { return (double)(bits >> 11) * 0x1p-53; }

// To the nearest, halves to even; a NaN never comes here.
static __device__ uint16_t narrowed(float value, u64 dtype) {
    const uint32_t wide = __float_as_uint(value);
    if (dtype == BF16) return (uint16_t)((wide + 0x7fff + ((wide >> 16) & 1)) >> 16);
    const uint16_t sign = (uint16_t)((wide >> 16) & 0x8000);
    const uint32_t magnitude = wide & 0x7fffffff;
    if (magnitude >= 0x477ff000) return sign | 0x7c00;  // 65520 and above, infinity with it
    if (magnitude < 0x38800000) {                       // below the least normal number
        const float scaled = __uint_as_float(magnitude) * 0x1p24f;
        const uint32_t whole = (uint32_t)scaled;
        const float rest = scaled - (float)whole;
        const uint32_t up = rest > 0.5f || (rest == 0.5f && (whole & 1));
        return sign | (uint16_t)(whole + up);
    }
    return sign | (uint16_t)((magnitude - 0x38000000 + 0xfff + ((magnitude >> 13) & 1)) >> 13);
}

// The same to E4M3; what is larger than its largest becomes that.
static __device__ uint8_t narrowed_e4m3(float value) {
    const uint32_t wide = __float_as_uint(value), magnitude = wide & 0x7fffffff;
    const uint8_t sign = (uint8_t)((wide >> 24) & 0x80);
    if (magnitude >= 0x43e00000) return sign | 0x7e;  // 448 and above
    if (magnitude < 0x3c800000) {                     // below the least normal number
        const float scaled = __uint_as_float(magnitude) * 0x1p9f;
        const uint32_t whole = (uint32_t)scaled;
        const float rest = scaled - (float)whole;
        const uint32_t up = rest > 0.5f || (rest == 0.5f && (whole & 1));
        return sign | (uint8_t)(whole + up);
    }
    return sign | (uint8_t)((magnitude - 0x3c000000 + 0x7ffff + ((magnitude >> 20) & 1)) >> 20);
}

static __device__ double value(u64 kind, double a, double b, double c, u64 key, u64 element) {
    const u64 bits = drawn(key, element);
    if (kind == ZEROS) return 0.0;
    if (kind == ONES) return 1.0;
    if (kind == UNIFORM) return a + (b - a) * unit(bits);
    if (kind == INTEGERS) return floor(a + (b - a + 1.0) * unit(bits));
    if (c > 0.0 && unit(mixed(bits)) < c) return -INFINITY;
    // Box and Muller's transform, as exact as random numbers need.
    const float radius = sqrtf(-2.0f * __logf(1.0f - (float)(bits >> 40) * 0x1p-24f));
    return a + b * (double)(radius * __cosf(6.2831853f * (float)(bits & 0xffffff) * 0x1p-24f));
}

// The bits of an element.
static __device__ u64 content(u64 dtype, u64 kind, double a, double b, double c, u64 key, u64 element) {
    if (dtype == I64 && kind == INTEGERS) {
        const u64 low = (u64)(long long)a, span = (u64)(long long)b - low + 1;
        const u64 bits = drawn(key, element);
        return low + (span ? bits % span : bits);
    }
    const double drawn_value = value(kind, a, b, c, key, element);
    switch (dtype) {
        case F32: return __float_as_uint((float)drawn_value);
        case F64: return (u64)__double_as_longlong(drawn_value);
        case I32: return (uint32_t)(int32_t)floor(drawn_value);
        case I64: return (u64)(long long)floor(drawn_value);
        case E4M3: return narrowed_e4m3((float)drawn_value);
        default: return narrowed((float)drawn_value, dtype);
    }
}

static __device__ u64 loaded(const unsigned char *place, u64 size) {
    return size == 1   ? *place
           : size == 2 ? *(const uint16_t *)place
           : size == 4 ? *(const uint32_t *)place
                       : *(const u64 *)place;
}

static __device__ void stored(unsigned char *place, u64 size, u64 bits) {
    if (size == 1) *place = (unsigned char)bits;
    else if (size == 2) *(uint16_t *)place = (uint16_t)bits;
    else if (size == 4) *(uint32_t *)place = (uint32_t)bits;
    else *(u64 *)place = bits;
}

// Writes an input, or where `changed` is given, counts the elements that are not as they were written.
extern "C" __global__ void inputs(u64 base, u64 slot_bytes, u64 elements, u64 dtype, u64 kind, double a, double b,
                                  double c, u64 key, u64 changed) {
    const u64 size = size_of(dtype), own_key = mixed(mixed(key) + blockIdx.y);
    unsigned char *const array = (unsigned char *)base + blockIdx.y * slot_bytes;
    u64 wrong = 0;
    for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < elements; i += (u64)gridDim.x * blockDim.x) {
        const u64 bits = content(dtype, kind, a, b, c, own_key, i);
        if (!changed) stored(array + i * size, size, bits);
        else wrong += loaded(array + i * size, size) != bits;
    }
    if (wrong) atomicAdd((u64 *)changed, wrong);
}

// Writes a pattern of 8 bytes again and again into [from, to) of each slot, or counts what differs from it.
extern "C" __global__ void paint(u64 base, u64 slot_bytes, u64 from, u64 to, u64 pattern, u64 changed) {
    unsigned char *const slot = (unsigned char *)base + blockIdx.y * slot_bytes;
    u64 wrong = 0;
    const u64 first = from / 8, last = (to + 7) / 8;
    for (u64 at = first + (u64)blockIdx.x * blockDim.x + threadIdx.x; at < last; at += (u64)gridDim.x * blockDim.x) {
        if (at * 8 >= from && at * 8 + 8 <= to) {
            if (!changed) *(u64 *)(slot + at * 8) = pattern;
            else wrong += *(const u64 *)(slot + at * 8) != pattern;
            continue;
        }
        for (u64 byte = at * 8 > from ? at * 8 : from; byte < at * 8 + 8 && byte < to; ++byte) {
            const unsigned char expected = (unsigned char)(pattern >> (8 * (byte % 8)));
            if (!changed) slot[byte] = expected;
            else wrong += slot[byte] != expected;
        }
    }
    if (wrong) atomicAdd((u64 *)changed, wrong);
}

// Counts, slot by slot, the elements outside the tolerance. What was to be written last is looked at first.
extern "C" __global__ void compare(u64 right, u64 got, u64 slot_bytes, u64 elements, u64 dtype, double atol,
                                   double rtol, u64 wrong_by_slot) {
    const u64 slot = gridDim.y - 1 - blockIdx.y, size = size_of(dtype);
    const unsigned char *const r = (const unsigned char *)right + slot * slot_bytes;
    const unsigned char *const c = (const unsigned char *)got + slot * slot_bytes;
    u64 wrong = 0;
    for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < elements; i += (u64)gridDim.x * blockDim.x) {
        const u64 at = (elements - 1 - i) * size;
        wrong += is_wrong(r + at, c + at, dtype, atol, rtol);
    }
    if (wrong) atomicAdd((u64 *)wrong_by_slot + slot, wrong);
}
