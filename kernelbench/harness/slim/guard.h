// For how long is another device the current one?
#pragma once
#include "stream.h"
#pragma GCC visibility push(hidden)

namespace c10 {
namespace cuda {

// The device is another one for as long as this lives.
class OptionalCUDAGuard {
 public:
  OptionalCUDAGuard() = default;
  explicit OptionalCUDAGuard(std::optional<Device> device) {
    if (device) set_device(*device);
  }
  explicit OptionalCUDAGuard(std::optional<DeviceIndex> device) {
    if (device) set_index(*device);
  }
  OptionalCUDAGuard(const OptionalCUDAGuard&) = delete;
  OptionalCUDAGuard& operator=(const OptionalCUDAGuard&) = delete;
  ~OptionalCUDAGuard() {
    if (before_ >= 0) static_cast<void>(cudaSetDevice(before_));
  }
  void set_device(Device device) {
    if (device.is_cuda()) set_index(device.index());
  }
  void set_index(DeviceIndex device) {
    const DeviceIndex now = current_device();
    if (device < 0 || device == now) return;
    if (before_ < 0) before_ = now;
    c10::cuda::set_device(device);
  }

 private:
  DeviceIndex before_ = -1;
};
class CUDAGuard : public OptionalCUDAGuard {
 public:
  explicit CUDAGuard(Device device) { set_device(device); }
  explicit CUDAGuard(DeviceIndex device) { set_index(device); }
};

}  // namespace cuda
using DeviceGuard = cuda::CUDAGuard;
using OptionalDeviceGuard = cuda::OptionalCUDAGuard;
}  // namespace c10
#pragma GCC visibility pop
