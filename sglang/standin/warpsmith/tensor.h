// The part of torch's C++ interface that a launcher of a kernel uses: a tensor that is a pointer with a shape, a device, a
// stream, and a check that throws. Device code sees nothing of it. Names are torch's, so that the launcher's text stays as
// it is.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <ostream>
#include <sstream>
#include <stdexcept>
#include <string>

namespace c10 {

enum class DeviceType : int8_t { CPU = 0, CUDA = 1 };
using DeviceIndex = int8_t;

struct Device {
    DeviceType kind = DeviceType::CUDA;
    DeviceIndex place = 0;
    DeviceType type() const { return kind; }
    DeviceIndex index() const { return place; }
    bool is_cuda() const { return kind == DeviceType::CUDA; }
    bool operator==(const Device &other) const { return kind == other.kind && place == other.place; }
    bool operator!=(const Device &other) const { return !(*this == other); }
};

inline std::ostream &operator<<(std::ostream &out, const Device &device) {
    return out << (device.is_cuda() ? "cuda:" : "cpu:") << int(device.place);
}

// The numbers are torch's.
enum class ScalarType : int8_t {
    Byte = 0,
    Char = 1,
    Short = 2,
    Int = 3,
    Long = 4,
    Half = 5,
    Float = 6,
    Double = 7,
    Bool = 11,
    BFloat16 = 15,
    Float8_e5m2 = 23,
    Float8_e4m3fn = 24,
};

inline std::ostream &operator<<(std::ostream &out, ScalarType type) { return out << "type " << int(type); }

inline size_t elementSize(ScalarType type) {
    switch (type) {
        case ScalarType::Short:
        case ScalarType::Half:
        case ScalarType::BFloat16: return 2;
        case ScalarType::Int:
        case ScalarType::Float: return 4;
        case ScalarType::Long:
        case ScalarType::Double: return 8;
        default: return 1;
    }
}

struct IntArrayRef {
    const int64_t *first;
    size_t count;
    size_t size() const { return count; }
    const int64_t *begin() const { return first; }
    const int64_t *end() const { return first + count; }
    int64_t operator[](size_t at) const { return first[at]; }
};

struct Error : std::runtime_error {
    using std::runtime_error::runtime_error;
};

}  // namespace c10

namespace warpsmith {

// The stream of the call under way.
static thread_local cudaStream_t stream = nullptr;

template <typename... Parts>
[[noreturn]] void refuse(const char *condition, const Parts &...parts) {
    std::ostringstream text;
    ((text << "refused: " << condition << ": ") << ... << parts);
    throw c10::Error(text.str());
}

}  // namespace warpsmith

#define TORCH_CHECK(condition, ...)                                                   \
    do {                                                                              \
        if (!(condition)) ::warpsmith::refuse(#condition, "" __VA_OPT__(, ) __VA_ARGS__); \
    } while (false)
#define AT_ASSERTM(condition, ...) TORCH_CHECK(condition, __VA_ARGS__)
#define C10_CUDA_CHECK(call)                                                           \
    do {                                                                               \
        const cudaError_t error_ = (call);                                             \
        TORCH_CHECK(error_ == cudaSuccess, "CUDA error: ", cudaGetErrorString(error_)); \
    } while (false)
#define C10_CUDA_KERNEL_LAUNCH_CHECK() C10_CUDA_CHECK(cudaGetLastError())
#define AT_CUDA_CHECK(call) C10_CUDA_CHECK(call)

namespace at {

using c10::Device;
using c10::DeviceType;
using c10::IntArrayRef;
using c10::ScalarType;
inline constexpr DeviceType kCUDA = DeviceType::CUDA;
inline constexpr ScalarType kByte = ScalarType::Byte, kInt = ScalarType::Int, kLong = ScalarType::Long,
                            kHalf = ScalarType::Half, kFloat = ScalarType::Float, kBFloat16 = ScalarType::BFloat16,
                            kFloat8_e4m3fn = ScalarType::Float8_e4m3fn;

// A contiguous array in the GPU's memory, of up to eight dimensions.
class Tensor {
  public:
    Tensor() = default;
    Tensor(const void *data, ScalarType type, std::initializer_list<int64_t> sizes)
        : data_(const_cast<void *>(data)), type_(type), dim_(int(sizes.size())) {
        if (sizes.size() > 8) ::warpsmith::refuse("a tensor has at most 8 dimensions");
        int at = 0;
        for (int64_t size : sizes) sizes_[at++] = size;
        int64_t stride = 1;
        for (int i = dim_ - 1; i >= 0; --i) {
            strides_[i] = stride;
            stride *= sizes_[i];
        }
        numel_ = stride;
        int place = 0;
        cudaGetDevice(&place);
        device_.place = c10::DeviceIndex(place);
    }

    void *data_ptr() const { return data_; }
    template <typename T>
    T *data_ptr() const {
        return static_cast<T *>(data_);
    }
    template <typename T>
    const T *const_data_ptr() const {
        return static_cast<const T *>(data_);
    }
    int64_t dim() const { return dim_; }
    int64_t size(int64_t at) const { return sizes_[at < 0 ? at + dim_ : at]; }
    int64_t stride(int64_t at) const { return strides_[at < 0 ? at + dim_ : at]; }
    IntArrayRef sizes() const { return {sizes_, size_t(dim_)}; }
    IntArrayRef strides() const { return {strides_, size_t(dim_)}; }
    int64_t numel() const { return numel_; }
    size_t element_size() const { return c10::elementSize(type_); }
    ScalarType scalar_type() const { return type_; }
    ScalarType dtype() const { return type_; }
    Device device() const { return device_; }
    c10::DeviceIndex get_device() const { return device_.place; }
    bool is_cuda() const { return device_.is_cuda(); }
    bool is_contiguous() const { return true; }
    bool defined() const { return data_ != nullptr; }

  private:
    void *data_ = nullptr;
    ScalarType type_ = ScalarType::Float;
    int dim_ = 0;
    int64_t sizes_[8] = {}, strides_[8] = {}, numel_ = 0;
    Device device_;
};

}  // namespace at

namespace c10::cuda {

// A stream of CUDA's, as a launch takes it.
struct CUDAStream {
    cudaStream_t raw;
    cudaStream_t stream() const { return raw; }
    operator cudaStream_t() const { return raw; }
};

inline CUDAStream getCurrentCUDAStream(DeviceIndex = -1) { return {::warpsmith::stream}; }

// Whoever calls the entry has made the device the current one.
struct OptionalCUDAGuard {
    OptionalCUDAGuard() = default;
    explicit OptionalCUDAGuard(Device) {}
};
struct CUDAGuard {
    explicit CUDAGuard(Device) {}
    explicit CUDAGuard(DeviceIndex) {}
};

}  // namespace c10::cuda

namespace at::cuda {

using c10::cuda::CUDAGuard;
using c10::cuda::CUDAStream;
using c10::cuda::getCurrentCUDAStream;
using c10::cuda::OptionalCUDAGuard;

}  // namespace at::cuda

namespace torch {

using namespace at;

}  // namespace torch
