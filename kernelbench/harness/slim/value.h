// How does a value pass between C++ and Python?
//
// `Value<T>::to` makes a Python object of a T; `Value<T>::from` reads a T out of one, and says whether it was one.
#pragma once

namespace slim {

// What Python raised, on its way back to Python.
class Raised : public c10::Error {
 public:
  Raised(std::string message, Ref type, Ref value, Ref trace)
      : Error(std::move(message)), type_(std::move(type)), value_(std::move(value)), trace_(std::move(trace)) {}
  void restore() const { PyErr_Restore(Ref(type_).release(), Ref(value_).release(), Ref(trace_).release()); }

 private:
  Ref type_, value_, trace_;
};

// What a call of Python gave, or what it raised.
Ref owned(PyObject* result);
Ref attribute(PyObject* object, PyObject* name);
PyObject* torch_module();
// The dtype object of an element type, and back; there is one each.
PyObject* dtype_object(c10::ScalarType type);
bool read_type(PyObject* object, c10::ScalarType& type);
bool read_whole(PyObject* object, bool is_signed, long long& value);
bool read_real(PyObject* object, double& value);
bool read_text(PyObject* object, std::string& value);
bool read_truth(PyObject* object, bool& value);
// `object.name(all[1], ...)`; the first of `all` is the object's place.
Ref call_method(PyObject* object, PyObject* name, const Ref* all, size_t count);

template <class T, class = void>
struct Value;

template <class T>
Ref to_python(const T& value) {
  return Value<std::decay_t<T>>::to(value);
}

// The result of `object.name(arguments...)`.
template <class... T>
Ref method(PyObject* object, PyObject* name, const T&... arguments) {
  const Ref all[] = {Ref(), to_python(arguments)...};
  return call_method(object, name, all, sizeof...(T) + 1);
}

template <>
struct Value<Ref> {
  static Ref to(const Ref& value) { return value; }
};

template <>
struct Value<bool> {
  static Ref to(bool value) { return Ref(PyBool_FromLong(value)); }
  static bool from(PyObject* object, bool& value) { return read_truth(object, value); }
};

template <class T>
struct Value<T, std::enable_if_t<std::is_integral<T>::value && !std::is_same<T, char>::value>> {
  static Ref to(T value) {
    return owned(std::is_signed<T>::value ? PyLong_FromLongLong(static_cast<long long>(value))
                                          : PyLong_FromUnsignedLongLong(static_cast<unsigned long long>(value)));
  }
  static bool from(PyObject* object, T& value) {
    long long wide = 0;
    if (!read_whole(object, std::is_signed<T>::value, wide)) return false;
    value = static_cast<T>(wide);
    return static_cast<long long>(value) == wide;
  }
};

template <class T>
struct Value<T, std::enable_if_t<std::is_floating_point<T>::value>> {
  static Ref to(T value) { return owned(PyFloat_FromDouble(static_cast<double>(value))); }
  static bool from(PyObject* object, T& value) {
    double wide = 0;
    if (!read_real(object, wide)) return false;
    value = static_cast<T>(wide);
    return true;
  }
};

template <>
struct Value<std::string> {
  static Ref to(const std::string& value) {
    return owned(PyUnicode_FromStringAndSize(value.data(), static_cast<ssize_t>(value.size())));
  }
  static bool from(PyObject* object, std::string& value) { return read_text(object, value); }
};

template <>
struct Value<const char*> {
  static Ref to(const char* value) { return owned(PyUnicode_FromString(value)); }
};

template <class T>
struct Value<c10::ArrayRef<T>> {
  static Ref to(c10::ArrayRef<T> value) {
    Ref tuple = owned(PyTuple_New(static_cast<ssize_t>(value.size())));
    for (size_t i = 0; i < value.size(); i++)
      PyTuple_SetItem(tuple.get(), static_cast<ssize_t>(i), to_python(value[i]).release());
    return tuple;
  }
};

template <class T>
struct Value<std::vector<T>> {
  static Ref to(const std::vector<T>& value) {
    Ref list = owned(PyList_New(static_cast<ssize_t>(value.size())));
    for (size_t i = 0; i < value.size(); i++)
      PyList_SetItem(list.get(), static_cast<ssize_t>(i), to_python(static_cast<const T&>(value[i])).release());
    return list;
  }
  static bool from(PyObject* object, std::vector<T>& value) {
    if (!PySequence_Check(object) || is_a(object, PyUnicode_Type)) return false;
    const ssize_t length = PySequence_Size(object);
    if (length < 0) return PyErr_Clear(), false;
    for (ssize_t i = 0; i < length; i++) {
      const Ref item(PySequence_GetItem(object, i));
      T one{};
      if (!item) return PyErr_Clear(), false;
      if (!Value<T>::from(item.get(), one)) return false;
      value.push_back(std::move(one));
    }
    return true;
  }
};

template <class T>
struct Value<std::optional<T>> {
  static Ref to(const std::optional<T>& value) { return value ? to_python(*value) : none(); }
  static bool from(PyObject* object, std::optional<T>& value) {
    value.reset();
    if (is_none(object)) return true;
    T one{};
    if (!Value<T>::from(object, one)) return false;
    value = std::move(one);
    return true;
  }
};

template <>
struct Value<std::nullopt_t> {
  static Ref to(std::nullopt_t) { return none(); }
};

template <class... T>
struct Value<std::tuple<T...>> {
  static Ref to(const std::tuple<T...>& value) { return to(value, std::index_sequence_for<T...>()); }
  template <size_t... I>
  static Ref to(const std::tuple<T...>& value, std::index_sequence<I...>) {
    Ref tuple = owned(PyTuple_New(sizeof...(T)));
    (PyTuple_SetItem(tuple.get(), I, to_python(std::get<I>(value)).release()), ...);
    return tuple;
  }
  static bool from(PyObject* object, std::tuple<T...>& value) {
    return PySequence_Check(object) && PySequence_Size(object) == static_cast<ssize_t>(sizeof...(T)) &&
           from(object, value, std::index_sequence_for<T...>());
  }
  template <size_t... I>
  static bool from(PyObject* object, std::tuple<T...>& value, std::index_sequence<I...>) {
    return (Value<T>::from(Ref(PySequence_GetItem(object, I)).get(), std::get<I>(value)) && ...);
  }
};

template <class A, class B>
struct Value<std::pair<A, B>> {
  static Ref to(const std::pair<A, B>& value) { return to_python(std::tuple<A, B>(value.first, value.second)); }
};

template <>
struct Value<c10::ScalarType> {
  static Ref to(c10::ScalarType value) { return Ref::borrowed(dtype_object(value)); }
  static bool from(PyObject* object, c10::ScalarType& value) { return read_type(object, value); }
};

}  // namespace slim
