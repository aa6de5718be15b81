// What kernels in HIP name, for nvcc: CUDA's functions by HIP's names. AMD's own instructions have none, and a warp has
// 32 lanes here.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <stddef.h>
#include <stdint.h>

// The host's side.
typedef cudaError_t hipError_t;
typedef cudaStream_t hipStream_t;
typedef cudaMemcpyKind hipMemcpyKind;
typedef cudaFuncAttribute hipFuncAttribute;
#define hipSuccess cudaSuccess
#define hipErrorInvalidValue cudaErrorInvalidValue
#define hipErrorOutOfMemory cudaErrorMemoryAllocation
#define hipErrorUnknown cudaErrorUnknown
#define hipMemcpyHostToHost cudaMemcpyHostToHost
#define hipMemcpyHostToDevice cudaMemcpyHostToDevice
#define hipMemcpyDeviceToHost cudaMemcpyDeviceToHost
#define hipMemcpyDeviceToDevice cudaMemcpyDeviceToDevice
#define hipFuncAttributeMaxDynamicSharedMemorySize cudaFuncAttributeMaxDynamicSharedMemorySize
#define hipLaunchKernel cudaLaunchKernel
#define hipGetLastError cudaGetLastError
#define hipPeekAtLastError cudaPeekAtLastError
#define hipGetErrorString cudaGetErrorString
#define hipMalloc cudaMalloc
#define hipFree cudaFree
#define hipMallocAsync cudaMallocAsync
#define hipFreeAsync cudaFreeAsync
#define hipMemsetAsync cudaMemsetAsync
#define hipMemcpyAsync cudaMemcpyAsync
#define hipFuncSetAttribute cudaFuncSetAttribute
#define HIP_KERNEL_NAME(...) __VA_ARGS__
#define HIP_DYNAMIC_SHARED(type, name) extern __shared__ type name[];
#define hipLaunchKernelGGL(kernel, grid, block, shared, stream, ...) \
  kernel<<<(grid), (block), (shared), (stream)>>>(__VA_ARGS__)

// Where a thread is.
#include <hip/coordinates.h>

// The compiler's own name for it in HIP; the host's compiler has another type by that name.
#define __bf16 __nv_bfloat16
typedef __nv_bfloat16 __hip_bfloat16;

// What threads do together. HIP's shuffles name no lanes that take part: all of a warp do.
#define WARPSMITH_HERE static __device__ __forceinline__
WARPSMITH_HERE unsigned __lane_id() {
  unsigned lane;
  asm("mov.u32 %0, %%laneid;" : "=r"(lane));
  return lane;
}
#define WARPSMITH_SHUFFLE(name, second)                       \
  template <typename T>                                       \
  WARPSMITH_HERE T name(T value, second by, int width = 32) { \
    static_assert(sizeof(T) == 4, "a shuffle moves 4 bytes"); \
    return name##_sync(0xffffffffu, value, by, width);        \
  }
WARPSMITH_SHUFFLE(__shfl, int)
WARPSMITH_SHUFFLE(__shfl_xor, int)
WARPSMITH_SHUFFLE(__shfl_down, unsigned)
WARPSMITH_SHUFFLE(__shfl_up, unsigned)
#undef WARPSMITH_SHUFFLE
#undef WARPSMITH_HERE
