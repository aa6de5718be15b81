// Which device is in use, and did a call of CUDA succeed?
#pragma once
#include <cuda_runtime_api.h>
#pragma GCC visibility push(hidden)

namespace slim {

inline void check_gpu(cudaError_t status, const char* file, int line) {
  if (status == cudaSuccess) return;
  static_cast<void>(cudaGetLastError());
  throw c10::Error(text("CUDA error: ", cudaGetErrorString(status), " (", file, ":", line, ")"));
}

}  // namespace slim

#define C10_CUDA_CHECK(call) ::slim::check_gpu((call), __FILE__, __LINE__)
#define C10_CUDA_KERNEL_LAUNCH_CHECK() C10_CUDA_CHECK(cudaGetLastError())
#define C10_CUDA_CHECK_WARN(call) static_cast<void>(call)

namespace c10 {
namespace cuda {

inline DeviceIndex current_device() {
  int device = 0;
  C10_CUDA_CHECK(cudaGetDevice(&device));
  return static_cast<DeviceIndex>(device);
}
inline void set_device(DeviceIndex device) { C10_CUDA_CHECK(cudaSetDevice(device)); }
inline DeviceIndex device_count() {
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess ? static_cast<DeviceIndex>(count) : 0;
}
inline void device_synchronize() { C10_CUDA_CHECK(cudaDeviceSynchronize()); }

}  // namespace cuda
}  // namespace c10

namespace at {
namespace cuda {
using namespace c10::cuda;
}
}  // namespace at
#pragma GCC visibility pop
