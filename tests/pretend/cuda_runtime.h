// What sources in CUDA need of the runtime where the processor pretends to be a GPU: no launches, so a kernel here is a
// loop in its host function.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstring>

#define __global__
#define __device__

typedef struct pretend_stream *cudaStream_t;
struct pretend_index { unsigned long long x, y, z; };
static thread_local pretend_index blockIdx, threadIdx, gridDim = {1, 1, 1}, blockDim = {1, 1, 1};

extern "C" inline __attribute__((visibility("default"), used)) void pretend_at(unsigned long long slot,
                                                                              unsigned long long slots) {
    blockIdx.y = slot;
    gridDim.y = slots;
}

static inline float __uint_as_float(uint32_t bits) { float value; memcpy(&value, &bits, 4); return value; }
static inline uint32_t __float_as_uint(float value) { uint32_t bits; memcpy(&bits, &value, 4); return bits; }
static inline long long __double_as_longlong(double value) { long long bits; memcpy(&bits, &value, 8); return bits; }
#define __logf logf
#define __cosf cosf
static inline void atomicAdd(unsigned long long *place, unsigned long long more) { *place += more; }
using std::isinf;
using std::isnan;

static thread_local int pretend_error = 0;
static inline int cudaMalloc(void **place, size_t bytes) {
    *place = nullptr;
    return pretend_error = bytes > 1ull << 36 ? 2 : 1;
}
extern "C" inline __attribute__((visibility("default"), used)) int cudaGetLastError() {
    const int error = pretend_error;
    pretend_error = 0;
    return error;
}
