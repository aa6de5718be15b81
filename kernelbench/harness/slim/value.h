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
  void restore() const {
    PyErr_Restore(Ref(type_).release(), Ref(value_).release(), Ref(trace_).release());
  }

 private:
  Ref type_, value_, trace_;
};

[[noreturn]] inline void throw_raised() {
  PyObject *type = nullptr, *value = nullptr, *trace = nullptr;
  PyErr_Fetch(&type, &value, &trace);
  Ref said(value ? PyObject_Str(value) : nullptr);
  const char* text = said ? PyUnicode_AsUTF8AndSize(said.get(), nullptr) : nullptr;
  std::string message = text ? text : "an error in Python";
  PyErr_Clear();
  throw Raised(message, Ref(type), Ref(value), Ref(trace));
}

// What a call of Python gave, or what it raised.
inline Ref owned(PyObject* result) {
  if (!result) throw_raised();
  return Ref(result);
}

inline Ref attribute(PyObject* object, PyObject* name) { return owned(PyObject_GetAttr(object, name)); }

template <class T, class = void>
struct Value;

template <class T>
Ref to_python(const T& value) { return Value<std::decay_t<T>>::to(value); }

// The result of `object.name(arguments...)`.
template <class... T>
Ref method(PyObject* object, PyObject* name, const T&... arguments) {
  const Ref held[] = {Ref(), to_python(arguments)...};
  PyObject* all[sizeof...(T) + 1] = {object};
  for (size_t i = 1; i <= sizeof...(T); i++) all[i] = held[i].get();
  return owned(PyObject_VectorcallMethod(name, all, sizeof...(T) + 1, nullptr));
}

// A module's attribute, looked up at each use: a candidate may run long before it needs it.
inline PyObject* torch_module() {
  static PyObject* const module = owned(PyImport_ImportModule("torch")).release();
  return module;
}

template <>
struct Value<Ref> {
  static Ref to(const Ref& value) { return value; }
};

template <>
struct Value<bool> {
  static Ref to(bool value) { return Ref(PyBool_FromLong(value)); }
  static bool from(PyObject* object, bool& value) {
    if (!is_a(object, PyBool_Type)) return false;
    value = PyObject_IsTrue(object) == 1;
    return true;
  }
};

template <class T>
struct Value<T, std::enable_if_t<std::is_integral<T>::value && !std::is_same<T, char>::value>> {
  static Ref to(T value) {
    return owned(std::is_signed<T>::value ? PyLong_FromLongLong(static_cast<long long>(value))
                                          : PyLong_FromUnsignedLongLong(static_cast<unsigned long long>(value)));
  }
  static bool from(PyObject* object, T& value) {
    if (!PyIndex_Check(object)) return false;
    const Ref index(PyNumber_Index(object));
    if (!index) return PyErr_Clear(), false;
    if (std::is_signed<T>::value) {
      const long long wide = PyLong_AsLongLong(index.get());
      value = static_cast<T>(wide);
      return fits(static_cast<long long>(value) == wide);
    }
    const unsigned long long wide = PyLong_AsUnsignedLongLong(index.get());
    value = static_cast<T>(wide);
    return fits(static_cast<unsigned long long>(value) == wide);
  }
  static bool fits(bool same) {
    if (!PyErr_Occurred()) return same;
    PyErr_Clear();
    return false;
  }
};

template <class T>
struct Value<T, std::enable_if_t<std::is_floating_point<T>::value>> {
  static Ref to(T value) { return owned(PyFloat_FromDouble(static_cast<double>(value))); }
  static bool from(PyObject* object, T& value) {
    if (!PyNumber_Check(object)) return false;
    value = static_cast<T>(PyFloat_AsDouble(object));
    if (!PyErr_Occurred()) return true;
    PyErr_Clear();
    return false;
  }
};

template <>
struct Value<std::string> {
  static Ref to(const std::string& value) {
    return owned(PyUnicode_FromStringAndSize(value.data(), static_cast<ssize_t>(value.size())));
  }
  static bool from(PyObject* object, std::string& value) {
    if (!is_a(object, PyUnicode_Type)) return false;
    ssize_t length = 0;
    const char* text = PyUnicode_AsUTF8AndSize(object, &length);
    if (!text) return PyErr_Clear(), false;
    value.assign(text, static_cast<size_t>(length));
    return true;
  }
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

// The dtype objects of torch, which there is one each of.
inline PyObject* dtype_object(c10::ScalarType type) {
  static PyObject* known[128] = {};
  PyObject*& object = known[static_cast<int>(type)];
  if (!object) {
    const char* name = "none";
    switch (type) {
#define SLIM_NAME_OF(T, constant, python) \
  case c10::ScalarType::constant:         \
    name = python;                        \
    break;
      SLIM_FORALL_TYPES(SLIM_NAME_OF)
#undef SLIM_NAME_OF
      default: throw c10::Error("an element type that this build does not know");
    }
    object = owned(PyObject_GetAttrString(torch_module(), name)).release();
  }
  return object;
}

template <>
struct Value<c10::ScalarType> {
  static Ref to(c10::ScalarType value) { return Ref::borrowed(dtype_object(value)); }
  static bool from(PyObject* object, c10::ScalarType& value) {
    static constexpr c10::ScalarType usual[] = {c10::kFloat, c10::kHalf, c10::kBFloat16, c10::kLong, c10::kInt,
                                                c10::kDouble, c10::kBool, c10::kByte, c10::kChar, c10::kShort};
    for (c10::ScalarType type : usual) {
      if (dtype_object(type) == object) {
        value = type;
        return true;
      }
    }
    return false;
  }
};

}  // namespace slim
