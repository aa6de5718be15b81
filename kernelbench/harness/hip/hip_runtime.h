// What kernels in HIP name, for a compiler without ROCm: declarations of our own over the compiler's built-ins. Nothing
// here is linked or run.
#pragma once

#include <stddef.h>
#include <stdint.h>

#define __global__ __attribute__((global))
#define __device__ __attribute__((device))
#define __host__ __attribute__((host))
#define __shared__ __attribute__((shared))
#define __constant__ __attribute__((constant))
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...) WARPSMITH_BOUNDS(__VA_ARGS__, 1)
#define WARPSMITH_BOUNDS(threads, waves, ...) \
  __attribute__((amdgpu_flat_work_group_size(1, threads), amdgpu_waves_per_eu(waves)))
#define HIP_DYNAMIC_SHARED(type, name) extern __shared__ type name[];

#define WARPSMITH_BOTH static inline __host__ __device__ __attribute__((always_inline, unused))
#define WARPSMITH_HERE static inline __device__ __attribute__((always_inline, unused))

// Types.
struct dim3 {
  unsigned x, y, z;
  constexpr __host__ __device__ dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};

#define WARPSMITH_VECTOR(type, name)                                                  \
  struct alignas(2 * sizeof(type)) name##2 { type x, y; };                            \
  struct name##3 { type x, y, z; };                                                   \
  struct alignas(4 * sizeof(type)) name##4 { type x, y, z, w; };                      \
  WARPSMITH_BOTH name##2 make_##name##2(type x, type y) { return {x, y}; }            \
  WARPSMITH_BOTH name##3 make_##name##3(type x, type y, type z) { return {x, y, z}; } \
  WARPSMITH_BOTH name##4 make_##name##4(type x, type y, type z, type w) { return {x, y, z, w}; }
WARPSMITH_VECTOR(float, float)
WARPSMITH_VECTOR(double, double)
WARPSMITH_VECTOR(int, int)
WARPSMITH_VECTOR(unsigned, uint)
WARPSMITH_VECTOR(short, short)
WARPSMITH_VECTOR(unsigned short, ushort)
#undef WARPSMITH_VECTOR

typedef _Float16 __half;
typedef _Float16 half;
typedef __bf16 __hip_bfloat16;
struct alignas(4) __half2 {
  __half x, y;
};
typedef __half2 half2;
WARPSMITH_BOTH float __half2float(__half x) { return static_cast<float>(x); }
WARPSMITH_BOTH __half __float2half(float x) { return static_cast<__half>(x); }
WARPSMITH_BOTH __half __float2half_rn(float x) { return static_cast<__half>(x); }
WARPSMITH_BOTH __half2 __halves2half2(__half x, __half y) { return {x, y}; }
WARPSMITH_BOTH __half2 __half2half2(__half x) { return {x, x}; }
WARPSMITH_BOTH __half2 __float2half2_rn(float x) { return __half2half2(__float2half(x)); }
WARPSMITH_BOTH __half2 __floats2half2_rn(float x, float y) { return {__float2half(x), __float2half(y)}; }
WARPSMITH_BOTH __half __low2half(__half2 x) { return x.x; }
WARPSMITH_BOTH __half __high2half(__half2 x) { return x.y; }
WARPSMITH_BOTH float __low2float(__half2 x) { return __half2float(x.x); }
WARPSMITH_BOTH float __high2float(__half2 x) { return __half2float(x.y); }
WARPSMITH_BOTH float2 __half22float2(__half2 x) { return {__low2float(x), __high2float(x)}; }
WARPSMITH_BOTH __half __hadd(__half x, __half y) { return x + y; }
WARPSMITH_BOTH __half __hsub(__half x, __half y) { return x - y; }
WARPSMITH_BOTH __half __hmul(__half x, __half y) { return x * y; }
WARPSMITH_BOTH __half2 __hadd2(__half2 x, __half2 y) { return {__hadd(x.x, y.x), __hadd(x.y, y.y)}; }
WARPSMITH_BOTH __half2 __hsub2(__half2 x, __half2 y) { return {__hsub(x.x, y.x), __hsub(x.y, y.y)}; }
WARPSMITH_BOTH __half2 __hmul2(__half2 x, __half2 y) { return {__hmul(x.x, y.x), __hmul(x.y, y.y)}; }
WARPSMITH_HERE __half __hfma(__half x, __half y, __half z) { return __builtin_fmaf16(x, y, z); }
WARPSMITH_HERE __half2 __hfma2(__half2 x, __half2 y, __half2 z) {
  return {__hfma(x.x, y.x, z.x), __hfma(x.y, y.y, z.y)};
}
WARPSMITH_BOTH float __bfloat162float(__hip_bfloat16 x) { return static_cast<float>(x); }
WARPSMITH_BOTH __hip_bfloat16 __float2bfloat16(float x) { return static_cast<__hip_bfloat16>(x); }

// The host's side.
enum hipError_t { hipSuccess = 0, hipErrorInvalidValue = 1, hipErrorOutOfMemory = 2, hipErrorUnknown = 999 };
typedef struct ihipStream_t* hipStream_t;
enum hipMemcpyKind { hipMemcpyHostToHost, hipMemcpyHostToDevice, hipMemcpyDeviceToHost, hipMemcpyDeviceToDevice };
enum hipFuncAttribute { hipFuncAttributeMaxDynamicSharedMemorySize = 8 };
extern "C" {
hipError_t __hipPushCallConfiguration(dim3 grid, dim3 block, size_t shared = 0, hipStream_t stream = nullptr);
hipError_t __hipPopCallConfiguration(dim3* grid, dim3* block, size_t* shared, hipStream_t* stream);
hipError_t hipLaunchKernel(const void* kernel, dim3 grid, dim3 block, void** arguments, size_t shared,
                           hipStream_t stream);
hipError_t hipGetLastError(void);
hipError_t hipPeekAtLastError(void);
const char* hipGetErrorString(hipError_t error);
hipError_t hipMalloc(void** memory, size_t bytes);
hipError_t hipFree(void* memory);
hipError_t hipMallocAsync(void** memory, size_t bytes, hipStream_t stream);
hipError_t hipFreeAsync(void* memory, hipStream_t stream);
hipError_t hipMemsetAsync(void* memory, int value, size_t bytes, hipStream_t stream);
hipError_t hipMemcpyAsync(void* to, const void* from, size_t bytes, hipMemcpyKind kind, hipStream_t stream);
hipError_t hipFuncSetAttribute(const void* kernel, hipFuncAttribute attribute, int value);
}
template <typename T>
static inline hipError_t hipMallocAsync(T** memory, size_t bytes, hipStream_t stream) {
  return hipMallocAsync(reinterpret_cast<void**>(memory), bytes, stream);
}
#define HIP_KERNEL_NAME(...) __VA_ARGS__
#define hipLaunchKernelGGL(kernel, grid, block, shared, stream, ...) \
  kernel<<<(grid), (block), (shared), (stream)>>>(__VA_ARGS__)

// Where a thread is.
#define WARPSMITH_COORDINATES(name, of_x, of_y, of_z)                                                           \
  struct warpsmith_##name {                                                                                     \
    __declspec(property(get = get_x)) unsigned x;                                                               \
    __declspec(property(get = get_y)) unsigned y;                                                               \
    __declspec(property(get = get_z)) unsigned z;                                                               \
    __device__ __attribute__((always_inline)) unsigned get_x() const { return of_x; }                           \
    __device__ __attribute__((always_inline)) unsigned get_y() const { return of_y; }                           \
    __device__ __attribute__((always_inline)) unsigned get_z() const { return of_z; }                           \
    __device__ __attribute__((always_inline)) operator dim3() const { return dim3(get_x(), get_y(), get_z()); } \
  };                                                                                                            \
  extern const __device__ __attribute__((weak)) warpsmith_##name name;
WARPSMITH_COORDINATES(threadIdx, __builtin_amdgcn_workitem_id_x(), __builtin_amdgcn_workitem_id_y(),
                      __builtin_amdgcn_workitem_id_z())
WARPSMITH_COORDINATES(blockIdx, __builtin_amdgcn_workgroup_id_x(), __builtin_amdgcn_workgroup_id_y(),
                      __builtin_amdgcn_workgroup_id_z())
WARPSMITH_COORDINATES(blockDim, __builtin_amdgcn_workgroup_size_x(), __builtin_amdgcn_workgroup_size_y(),
                      __builtin_amdgcn_workgroup_size_z())
WARPSMITH_COORDINATES(gridDim, __builtin_amdgcn_grid_size_x() / __builtin_amdgcn_workgroup_size_x(),
                      __builtin_amdgcn_grid_size_y() / __builtin_amdgcn_workgroup_size_y(),
                      __builtin_amdgcn_grid_size_z() / __builtin_amdgcn_workgroup_size_z())
#undef WARPSMITH_COORDINATES
#include <hip/coordinates.h>
#define warpSize 64

// What threads do together.
WARPSMITH_HERE void __syncthreads() {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
  __builtin_amdgcn_s_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}
WARPSMITH_HERE void __threadfence() { __builtin_amdgcn_fence(__ATOMIC_SEQ_CST, "agent"); }
WARPSMITH_HERE void __threadfence_block() { __builtin_amdgcn_fence(__ATOMIC_SEQ_CST, "workgroup"); }
WARPSMITH_HERE unsigned __lane_id() { return __builtin_amdgcn_mbcnt_hi(~0u, __builtin_amdgcn_mbcnt_lo(~0u, 0u)); }
WARPSMITH_HERE int warpsmith_from(int value, int lane) { return __builtin_amdgcn_ds_bpermute(lane << 2, value); }
// `lane` of the thread's own group of `width` lanes.
#define WARPSMITH_SHUFFLE(name, second, lane)                                                 \
  template <typename T>                                                                       \
  WARPSMITH_HERE T name(T value, second, int width = warpSize) {                              \
    static_assert(sizeof(T) == 4, "a shuffle moves 4 bytes");                                 \
    const int self = static_cast<int>(__lane_id()), first = self & ~(width - 1), at = (lane); \
    const int from = at < first || at >= first + width ? self : at;                           \
    return __builtin_bit_cast(T, warpsmith_from(__builtin_bit_cast(int, value), from));       \
  }
WARPSMITH_SHUFFLE(__shfl, int from_lane, first + (from_lane & (width - 1)))
WARPSMITH_SHUFFLE(__shfl_xor, int mask, self ^ mask)
WARPSMITH_SHUFFLE(__shfl_down, unsigned by, self + static_cast<int>(by))
WARPSMITH_SHUFFLE(__shfl_up, unsigned by, self - static_cast<int>(by))
#undef WARPSMITH_SHUFFLE
WARPSMITH_HERE float atomicAdd(float* to, float value) {
  return __hip_atomic_fetch_add(to, value, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}
WARPSMITH_HERE int atomicAdd(int* to, int value) {
  return __hip_atomic_fetch_add(to, value, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}
WARPSMITH_HERE unsigned atomicAdd(unsigned* to, unsigned value) {
  return __hip_atomic_fetch_add(to, value, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}

// Arithmetic that the compiler has instructions for.
WARPSMITH_HERE float fmaf(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
WARPSMITH_HERE float fabsf(float x) { return __builtin_fabsf(x); }
WARPSMITH_HERE float fminf(float a, float b) { return __builtin_fminf(a, b); }
WARPSMITH_HERE float fmaxf(float a, float b) { return __builtin_fmaxf(a, b); }
WARPSMITH_HERE float sqrtf(float x) { return __builtin_sqrtf(x); }
WARPSMITH_HERE float rsqrtf(float x) { return 1.0f / __builtin_sqrtf(x); }
WARPSMITH_HERE float expf(float x) { return __builtin_expf(x); }
WARPSMITH_HERE float exp2f(float x) { return __builtin_exp2f(x); }
WARPSMITH_HERE float logf(float x) { return __builtin_logf(x); }
WARPSMITH_HERE float __expf(float x) { return __builtin_expf(x); }
WARPSMITH_HERE float floorf(float x) { return __builtin_floorf(x); }
WARPSMITH_HERE float ceilf(float x) { return __builtin_ceilf(x); }
#define WARPSMITH_ORDER(type)                                       \
  WARPSMITH_BOTH type min(type a, type b) { return b < a ? b : a; } \
  WARPSMITH_BOTH type max(type a, type b) { return a < b ? b : a; }
WARPSMITH_ORDER(int)
WARPSMITH_ORDER(unsigned)
WARPSMITH_ORDER(long)
WARPSMITH_ORDER(unsigned long)
WARPSMITH_ORDER(float)
WARPSMITH_ORDER(double)
#undef WARPSMITH_ORDER
