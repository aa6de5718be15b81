// What is the current device, and what does torch hold there?
#pragma once
#include "stream.h"
#pragma GCC visibility push(hidden)

struct cublasContext;
#define AT_CUDA_CHECK(call) C10_CUDA_CHECK(call)
#define TORCH_CUDABLAS_CHECK(call) TORCH_CHECK((call) == CUBLAS_STATUS_SUCCESS, "CUDA error: " #call " failed")

namespace at {
namespace cuda {

inline cudaDeviceProp* getDeviceProperties(DeviceIndex device) {
  static cudaDeviceProp known[64];
  static bool read[64];
  TORCH_CHECK(device >= 0 && device < 64, "no such device");
  if (!read[device]) C10_CUDA_CHECK(cudaGetDeviceProperties(&known[device], device));
  read[device] = true;
  return &known[device];
}
inline cudaDeviceProp* getCurrentDeviceProperties() { return getDeviceProperties(current_device()); }
inline int warp_size() { return 32; }

// The handle that torch itself multiplies with, on its stream.
inline cublasContext* getCurrentCUDABlasHandle() {
  const slim::Ref cuda = slim::owned(PyObject_GetAttrString(slim::torch_module(), "cuda"));
  const slim::Ref handle = slim::method(cuda.get(), SLIM_NAME("current_blas_handle"));
  return reinterpret_cast<cublasContext*>(PyLong_AsUnsignedLongLong(handle.get()));
}

}  // namespace cuda
}  // namespace at
#pragma GCC visibility pop
