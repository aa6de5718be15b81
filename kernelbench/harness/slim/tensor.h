// What is a tensor here? A Python tensor, and what was read off it once.
#pragma once

namespace at {
class Tensor;
template <class T, size_t N, template <class> class Traits, class Index>
class PackedTensorAccessor;
template <class T>
struct DefaultPtrTraits {
  using PtrType = T*;
};
template <class T>
struct RestrictPtrTraits {
  using PtrType = T* __restrict__;
};
template <class T, size_t N>
class TensorAccessor;
}  // namespace at

namespace slim {

// What all copies of a C++ tensor share. It is read when the object comes in: threads that a kernel starts may ask a
// tensor for its size, and may not call Python. What outlives a call, such as a member of a class, is looked at again
// when the next one begins: a module that moved to another device has put other memory under the same objects.
struct Facts {
  Ref object;
  long holders = 1;
  void* data = nullptr;
  std::vector<int64_t> sizes, strides;
  int64_t numel = 1;
  c10::ScalarType type = c10::ScalarType::Undefined;
  c10::Device device;
  Facts *before = nullptr, *after = nullptr;

  explicit Facts(Ref tensor);
  Facts(const Facts&) = delete;
  ~Facts();
  void read();
  bool moved() const;
};

}  // namespace slim

namespace at {

// What the deprecated `x.type()` gives.
struct DeprecatedTypeProperties {
  c10::ScalarType type;
  c10::Device place;
  c10::ScalarType scalarType() const { return type; }
  bool is_cuda() const { return place.is_cuda(); }
};

class Tensor {
 public:
  Tensor() = default;
  explicit Tensor(slim::Ref object);
  Tensor(const Tensor& other) : facts_(other.facts_) {
    if (facts_) __atomic_add_fetch(&facts_->holders, 1, __ATOMIC_RELAXED);
  }
  Tensor(Tensor&& other) noexcept : facts_(other.facts_) { other.facts_ = nullptr; }
  Tensor& operator=(Tensor other) & noexcept {
    std::swap(facts_, other.facts_);
    return *this;
  }
  ~Tensor();

  bool defined() const { return facts_ != nullptr; }
  void reset() { *this = Tensor(); }
  bool is_same(const Tensor& other) const { return object() == other.object(); }
  PyObject* object() const { return facts_ ? facts_->object.get() : nullptr; }

  int64_t dim() const { return static_cast<int64_t>(facts().sizes.size()); }
  int64_t ndimension() const { return dim(); }
  int64_t numel() const { return facts().numel; }
  c10::IntArrayRef sizes() const { return facts().sizes; }
  c10::IntArrayRef strides() const { return facts().strides; }
  int64_t size(int64_t axis) const { return facts().sizes[wrapped(axis)]; }
  int64_t stride(int64_t axis) const { return facts().strides[wrapped(axis)]; }
  c10::ScalarType scalar_type() const { return facts().type; }
  c10::TypeMeta dtype() const { return facts().type; }
  DeprecatedTypeProperties type() const { return {facts().type, facts().device}; }
  size_t element_size() const { return c10::elementSize(facts().type); }
  size_t itemsize() const { return element_size(); }
  size_t nbytes() const { return element_size() * static_cast<size_t>(numel()); }
  c10::Device device() const { return facts().device; }
  int64_t get_device() const { return facts().device.index(); }
  bool is_cuda() const { return facts().device.is_cuda(); }
  bool is_cpu() const { return facts().device.is_cpu(); }
  bool is_floating_point() const { return c10::isFloatingType(facts().type); }
  c10::TensorOptions options() const { return c10::TensorOptions(facts().type).device(facts().device); }
  bool is_contiguous() const;

  void* data_ptr() const { return facts().data; }
  template <class T>
  T* data_ptr() const {
    using Element = std::remove_const_t<T>;
    const c10::ScalarType want = c10::CppTypeToScalarType<Element>::value;
    if (facts().type != want) slim::fail("", slim::text("expected scalar type ", want, " but found ", facts().type));
    return static_cast<T*>(facts().data);
  }
  template <class T>
  T* data() const {
    return data_ptr<T>();
  }
  template <class T>
  T* mutable_data_ptr() const {
    return data_ptr<T>();
  }
  template <class T>
  const std::remove_const_t<T>* const_data_ptr() const {
    return data_ptr<std::remove_const_t<T>>();
  }
  void* mutable_data_ptr() const { return data_ptr(); }
  const void* const_data_ptr() const { return data_ptr(); }
  template <class T>
  T item() const {
    return read<T>(call(SLIM_NAME("item")));
  }
  Scalar item() const { return read<Scalar>(call(SLIM_NAME("item"))); }

  template <class T, size_t N>
  TensorAccessor<T, N> accessor() const;
  template <class T, size_t N, template <class> class Traits = DefaultPtrTraits>
  PackedTensorAccessor<T, N, Traits, int> packed_accessor32() const;
  template <class T, size_t N, template <class> class Traits = DefaultPtrTraits>
  PackedTensorAccessor<T, N, Traits, int64_t> packed_accessor64() const;

#include "methods.h"

 private:
  slim::Facts* facts_ = nullptr;

  const slim::Facts& facts() const {
    if (!facts_) slim::fail("", "a tensor that is not defined was used");
    return *facts_;
  }
  size_t wrapped(int64_t axis) const;
  template <class... T>
  slim::Ref call(PyObject* name, const T&... arguments) const {
    return slim::method(facts().object.get(), name, arguments...);
  }
  template <class T>
  static T read(const slim::Ref& from) {
    T value{};
    if (!slim::Value<T>::from(from.get(), value)) slim::fail("", "a value of another type than was asked for");
    return value;
  }
};

}  // namespace at

namespace slim {

template <>
struct Value<at::Tensor> {
  static Ref to(const at::Tensor& value);
  static bool from(PyObject* object, at::Tensor& value);
};

}  // namespace slim

namespace at {
#define SLIM_BINARY(op, name)                                               \
  inline Tensor operator op(const Tensor& a, const Tensor& b) {             \
    return Tensor(slim::owned(name(a.object(), b.object())));               \
  }                                                                         \
  inline Tensor operator op(const Tensor& a, const Scalar& b) {             \
    return Tensor(slim::owned(name(a.object(), slim::to_python(b).get()))); \
  }                                                                         \
  inline Tensor operator op(const Scalar& a, const Tensor& b) {             \
    return Tensor(slim::owned(name(slim::to_python(a).get(), b.object()))); \
  }
SLIM_BINARY(+, PyNumber_Add)
SLIM_BINARY(-, PyNumber_Subtract)
SLIM_BINARY(*, PyNumber_Multiply)
SLIM_BINARY(/, PyNumber_TrueDivide)
#undef SLIM_BINARY
inline Tensor operator-(const Tensor& a) { return Tensor(slim::owned(PyNumber_Negative(a.object()))); }
inline std::optional<c10::Device> device_of(const Tensor& tensor) {
  if (!tensor.defined()) return std::nullopt;
  return tensor.device();
}
}  // namespace at
