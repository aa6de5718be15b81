// How does an extension make tensors, and what does it ask of torch as a function?
#pragma once

namespace slim {

// `torch.name(all..., dtype=..., device=...)`, with what the options say; there is room for three more in `all`.
at::Tensor make_of(PyObject* name, const c10::TensorOptions& options, Ref* all, size_t count);

template <class... T>
at::Tensor make(PyObject* name, const c10::TensorOptions& options, const T&... arguments) {
  Ref all[sizeof...(T) + 3] = {to_python(arguments)...};
  return make_of(name, options, all, sizeof...(T));
}

}  // namespace slim

namespace at {

#define SLIM_FILLED(name)                                                                      \
  inline Tensor name(c10::IntArrayRef sizes, const c10::TensorOptions& options = {}) {         \
    return slim::make(SLIM_NAME(#name), options, sizes);                                       \
  }                                                                                            \
  inline Tensor name##_like(const Tensor& other, const c10::TensorOptions& options = {}) {     \
    return slim::make(SLIM_NAME(#name "_like"), options, other);                               \
  }
SLIM_FILLED(empty) SLIM_FILLED(zeros) SLIM_FILLED(ones) SLIM_FILLED(rand) SLIM_FILLED(randn)
#undef SLIM_FILLED
inline Tensor full(c10::IntArrayRef sizes, const Scalar& value, const c10::TensorOptions& options = {}) {
  return slim::make(SLIM_NAME("full"), options, sizes, value);
}
inline Tensor full_like(const Tensor& other, const Scalar& value, const c10::TensorOptions& options = {}) {
  return slim::make(SLIM_NAME("full_like"), options, other, value);
}
inline Tensor empty_strided(c10::IntArrayRef sizes, c10::IntArrayRef strides, const c10::TensorOptions& options = {}) {
  return slim::make(SLIM_NAME("empty_strided"), options, sizes, strides);
}
inline Tensor arange(const Scalar& end, const c10::TensorOptions& options = {}) {
  return slim::make(SLIM_NAME("arange"), options, end);
}

#define SLIM_UNARY(name) \
  inline Tensor name(const Tensor& x) { return slim::make(SLIM_NAME(#name), {}, x); }
SLIM_UNARY(abs) SLIM_UNARY(exp) SLIM_UNARY(log) SLIM_UNARY(sqrt) SLIM_UNARY(rsqrt) SLIM_UNARY(sigmoid) SLIM_UNARY(tanh)
SLIM_UNARY(relu) SLIM_UNARY(neg) SLIM_UNARY(sum) SLIM_UNARY(mean) SLIM_UNARY(max) SLIM_UNARY(min)
#undef SLIM_UNARY
#define SLIM_BINARY(name) \
  inline Tensor name(const Tensor& a, const Tensor& b) { return slim::make(SLIM_NAME(#name), {}, a, b); }
SLIM_BINARY(matmul) SLIM_BINARY(mm) SLIM_BINARY(bmm) SLIM_BINARY(add) SLIM_BINARY(sub) SLIM_BINARY(mul) SLIM_BINARY(div)
SLIM_BINARY(maximum) SLIM_BINARY(minimum)
#undef SLIM_BINARY
inline Tensor softmax(const Tensor& x, int64_t axis) { return slim::make(SLIM_NAME("softmax"), {}, x, axis); }
inline Tensor cumsum(const Tensor& x, int64_t axis) { return slim::make(SLIM_NAME("cumsum"), {}, x, axis); }
inline Tensor addmm(const Tensor& c, const Tensor& a, const Tensor& b) {
  return slim::make(SLIM_NAME("addmm"), {}, c, a, b);
}
inline Tensor cat(const std::vector<Tensor>& tensors, int64_t axis = 0) {
  return slim::make(SLIM_NAME("cat"), {}, tensors, axis);
}
inline Tensor stack(const std::vector<Tensor>& tensors, int64_t axis = 0) {
  return slim::make(SLIM_NAME("stack"), {}, tensors, axis);
}

}  // namespace at

// The names that extensions use for all this.
namespace torch {
using namespace at;
using Dtype = c10::ScalarType;
using Device = c10::Device;
using DeviceType = c10::DeviceType;
using IntArrayRef = c10::IntArrayRef;
using TensorOptions = c10::TensorOptions;
using MemoryFormat = c10::MemoryFormat;
constexpr c10::ScalarType kUInt8 = c10::kByte, kInt8 = c10::kChar, kInt16 = c10::kShort, kInt32 = c10::kInt,
                          kInt64 = c10::kLong, kFloat16 = c10::kHalf, kFloat32 = c10::kFloat, kFloat64 = c10::kDouble;
template <class F>
F wrap_pybind_function(F function) { return function; }
using TensorList = c10::ArrayRef<at::Tensor>;
}  // namespace torch
namespace at {
using TensorList = c10::ArrayRef<at::Tensor>;
using IntArrayRef = c10::IntArrayRef;
}  // namespace at
