// On which stream and device does a kernel run, and did it start?
#pragma once
#include <cuda_runtime_api.h>
#pragma GCC visibility push(hidden)

struct cublasContext;

namespace slim {

inline void check_gpu(cudaError_t status, const char* file, int line) {
  if (status == cudaSuccess) return;
  static_cast<void>(cudaGetLastError());
  throw c10::Error(text("CUDA error: ", cudaGetErrorString(status), " (", file, ":", line, ")"));
}

}  // namespace slim

#define C10_CUDA_CHECK(call) ::slim::check_gpu((call), __FILE__, __LINE__)
#define AT_CUDA_CHECK(call) C10_CUDA_CHECK(call)
#define TORCH_CUDA_CHECK(call) C10_CUDA_CHECK(call)
#define TORCH_CUDABLAS_CHECK(call) TORCH_CHECK((call) == CUBLAS_STATUS_SUCCESS, "CUDA error: " #call " failed")
#define C10_CUDA_KERNEL_LAUNCH_CHECK() C10_CUDA_CHECK(cudaGetLastError())
#define C10_CUDA_CHECK_WARN(call) static_cast<void>(call)
#define CUDA_KERNEL_LOOP_TYPE(i, n, index_type)                                                     \
  int64_t slim_at_##i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;                \
  for (index_type i = slim_at_##i; slim_at_##i < (n); slim_at_##i += static_cast<int64_t>(blockDim.x) * gridDim.x, i = slim_at_##i)
#define CUDA_KERNEL_LOOP(i, n) CUDA_KERNEL_LOOP_TYPE(i, n, int)
#define CUDA_1D_KERNEL_LOOP(i, n) CUDA_KERNEL_LOOP(i, n)
#define C10_WARP_SIZE 32
#define C10_LAUNCH_BOUNDS_1(threads) __launch_bounds__(threads)
#define C10_LAUNCH_BOUNDS_2(threads, blocks) __launch_bounds__(threads, blocks)
#define WARP_SHFL_XOR(...) __shfl_xor_sync(0xffffffff, __VA_ARGS__)
#define WARP_SHFL_DOWN(...) __shfl_down_sync(0xffffffff, __VA_ARGS__)

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

namespace at {
namespace cuda {
using namespace c10::cuda;

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

template <class T>
C10_HOST_DEVICE inline T ATenCeilDiv(T a, T b) { return (a + b - 1) / b; }
}  // namespace cuda
template <class T>
C10_HOST_DEVICE inline T ceil_div(T a, T b) { return (a + b - 1) / b; }
}  // namespace at
namespace torch {
namespace cuda {
inline bool is_available() { return c10::cuda::device_count() > 0; }
inline size_t device_count() { return static_cast<size_t>(c10::cuda::device_count()); }
inline void synchronize(int64_t = -1) { c10::cuda::device_synchronize(); }
}  // namespace cuda
}  // namespace torch
#pragma GCC visibility pop
