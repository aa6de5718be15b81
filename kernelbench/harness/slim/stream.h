// On which stream does a kernel run?
#pragma once
#include "gpu.h"
#pragma GCC visibility push(hidden)

namespace c10 {
namespace cuda {

class CUDAStream {
 public:
  CUDAStream(cudaStream_t stream, DeviceIndex device) : stream_(stream), device_(device) {}
  cudaStream_t stream() const { return stream_; }
  operator cudaStream_t() const { return stream_; }
  DeviceIndex device_index() const { return device_; }
  Device device() const { return Device(kCUDA, device_); }
  void synchronize() const { C10_CUDA_CHECK(cudaStreamSynchronize(stream_)); }

 private:
  cudaStream_t stream_;
  DeviceIndex device_;
};

inline CUDAStream getCurrentCUDAStream(DeviceIndex device = -1) {
  static PyObject* const raw = [] {
    const slim::Ref inner = slim::owned(PyObject_GetAttrString(slim::torch_module(), "_C"));
    return slim::owned(PyObject_GetAttrString(inner.get(), "_cuda_getCurrentRawStream")).release();
  }();
  if (device < 0) device = current_device();
  const slim::Ref index = slim::to_python(static_cast<int>(device));
  PyObject* arguments[] = {index.get()};
  const slim::Ref stream = slim::owned(PyObject_Vectorcall(raw, arguments, 1, nullptr));
  return CUDAStream(reinterpret_cast<cudaStream_t>(PyLong_AsUnsignedLongLong(stream.get())), device);
}
inline CUDAStream getDefaultCUDAStream(DeviceIndex device = -1) {
  return CUDAStream(nullptr, device < 0 ? current_device() : device);
}

}  // namespace cuda
}  // namespace c10
#pragma GCC visibility pop
