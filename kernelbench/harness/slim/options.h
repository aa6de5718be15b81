// Where does a tensor lie, and of what type are its elements?
#pragma once

namespace c10 {

enum class DeviceType : int8_t { CPU = 0, CUDA = 1, Other = 127 };
constexpr DeviceType kCPU = DeviceType::CPU;
constexpr DeviceType kCUDA = DeviceType::CUDA;
using DeviceIndex = int8_t;

class Device {
 public:
  Device(DeviceType type = kCPU, DeviceIndex index = -1) : type_(type), index_(index) {}
  Device(const std::string& name) {
    const bool on_gpu = name.compare(0, 4, "cuda") == 0;
    if (!on_gpu && name.compare(0, 3, "cpu") != 0)
      throw Error("this build knows the devices cpu and cuda, not " + name);
    type_ = on_gpu ? kCUDA : kCPU;
    const size_t colon = name.find(':');
    if (colon != std::string::npos) index_ = static_cast<DeviceIndex>(std::stoi(name.substr(colon + 1)));
  }
  DeviceType type() const { return type_; }
  DeviceIndex index() const { return index_; }
  bool has_index() const { return index_ >= 0; }
  bool is_cuda() const { return type_ == kCUDA; }
  bool is_cpu() const { return type_ == kCPU; }
  std::string str() const {
    const char* name = is_cuda() ? "cuda" : is_cpu() ? "cpu" : "other";
    return has_index() ? std::string(name) + ":" + std::to_string(static_cast<int>(index_)) : name;
  }
  bool operator==(const Device& other) const { return type_ == other.type_ && index_ == other.index_; }
  bool operator!=(const Device& other) const { return !(*this == other); }

 private:
  DeviceType type_ = kCPU;
  DeviceIndex index_ = -1;
};

// A number or a truth value that keeps which of them it is.
class Scalar {
 public:
  Scalar() : Scalar(static_cast<int64_t>(0)) {}
  template <class T, class = std::enable_if_t<std::is_arithmetic<T>::value>>
  Scalar(T value)
      : kind_(std::is_same<T, bool>::value       ? kBool
              : std::is_floating_point<T>::value ? kDouble
                                                 : kLong),
        real_(static_cast<double>(value)),
        whole_(static_cast<int64_t>(value)) {}
  Scalar(Half value) : Scalar(static_cast<float>(value)) {}
  Scalar(BFloat16 value) : Scalar(static_cast<float>(value)) {}
  bool isFloatingPoint() const { return kind_ == kDouble; }
  bool isBoolean() const { return kind_ == kBool; }
  bool isIntegral(bool with_bool) const { return kind_ == kLong || (with_bool && isBoolean()); }
  ScalarType type() const { return kind_; }
  template <class T>
  T to() const {
    return isFloatingPoint() ? static_cast<T>(real_) : static_cast<T>(whole_);
  }
  float toFloat() const { return to<float>(); }
  double toDouble() const { return to<double>(); }
  int toInt() const { return to<int>(); }
  int64_t toLong() const { return to<int64_t>(); }
  bool toBool() const { return to<bool>(); }

 private:
  ScalarType kind_;
  double real_;
  int64_t whole_;
};

// What `x.dtype()` gives: as good as its ScalarType.
class TypeMeta {
 public:
  TypeMeta(ScalarType type = ScalarType::Undefined) : type_(type) {}
  ScalarType toScalarType() const { return type_; }
  size_t itemsize() const { return elementSize(type_); }
  std::string name() const { return toString(type_); }
  friend bool operator==(TypeMeta a, TypeMeta b) { return a.type_ == b.type_; }
  friend bool operator!=(TypeMeta a, TypeMeta b) { return a.type_ != b.type_; }
  friend bool operator==(TypeMeta a, ScalarType b) { return a.type_ == b; }
  friend bool operator!=(TypeMeta a, ScalarType b) { return a.type_ != b; }
  friend bool operator==(ScalarType a, TypeMeta b) { return a == b.type_; }
  friend bool operator!=(ScalarType a, TypeMeta b) { return a != b.type_; }

 private:
  ScalarType type_;
};

class TensorOptions {
 public:
  TensorOptions() = default;
  TensorOptions(ScalarType type) : type_(type) {}
  TensorOptions(TypeMeta type) : type_(type.toScalarType()) {}
  TensorOptions(Device device) : device_(device) {}
  TensorOptions(DeviceType device) : device_(Device(device)) {}
  TensorOptions dtype(ScalarType type) const {
    TensorOptions it = *this;
    it.type_ = type;
    return it;
  }
  TensorOptions dtype(TypeMeta type) const { return dtype(type.toScalarType()); }
  template <class T>
  TensorOptions dtype() const {
    return dtype(CppTypeToScalarType<T>::value);
  }
  TensorOptions device(Device device) const {
    TensorOptions it = *this;
    it.device_ = device;
    return it;
  }
  TensorOptions device(DeviceType type, DeviceIndex index = -1) const { return device(Device(type, index)); }
  TensorOptions device_index(DeviceIndex index) const { return device(kCUDA, index); }
  TensorOptions requires_grad(bool yes) const {
    TensorOptions it = *this;
    it.requires_grad_ = yes;
    return it;
  }
  TypeMeta dtype() const { return type_.value_or(kFloat); }
  Device device() const { return device_.value_or(Device()); }
  bool has_dtype() const { return type_.has_value(); }
  bool has_device() const { return device_.has_value(); }
  bool requires_grad() const { return requires_grad_; }

 private:
  std::optional<ScalarType> type_;
  std::optional<Device> device_;
  bool requires_grad_ = false;
};

inline TensorOptions dtype(ScalarType type) { return TensorOptions(type); }
inline TensorOptions dtype(TypeMeta type) { return TensorOptions(type); }
inline TensorOptions device(Device device) { return TensorOptions(device); }

inline void append_to(std::string& text, const Device& more) { text += more.str(); }
inline void append_to(std::string& text, DeviceType more) { text += Device(more).str(); }
inline void append_to(std::string& text, TypeMeta more) { text += more.name(); }

enum class MemoryFormat : int8_t { Contiguous, Preserve, ChannelsLast, ChannelsLast3d };

}  // namespace c10

namespace slim {

template <>
struct Value<c10::Scalar> {
  static Ref to(const c10::Scalar& value);
  static bool from(PyObject* object, c10::Scalar& value);
};
template <>
struct Value<c10::TypeMeta> {
  static Ref to(c10::TypeMeta value) { return to_python(value.toScalarType()); }
};
template <>
struct Value<c10::Device> {
  static Ref to(const c10::Device& value);
  static bool from(PyObject* object, c10::Device& value);
};
template <>
struct Value<c10::MemoryFormat> {
  static Ref to(c10::MemoryFormat value);
};

}  // namespace slim
