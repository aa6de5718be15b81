// How does Python see an extension's functions?
//
// A module is a plain Python module, which holds a built-in function for each name; the loader asks for it by one
// exported function. What pybind11 does for an extension, of which this offers `PYBIND11_MODULE`, `m.def` and
// `py::arg`, and in class.h `py::class_`.
#pragma once
#pragma GCC visibility push(hidden)

namespace slim {

// The inside of Python's PyMethodDef, which its stable interface fixes.
struct MethodDefinition {
  const char* name;
  PyCFunction function;
  int flags;
  const char* doc;
};
constexpr int fast_call_with_names = 0x80 | 0x02;
constexpr size_t most_parameters = 64;

struct Parameter {
  std::string name;
  Ref otherwise;
};

// One C++ function under a Python name, and further ones of the same name that are tried when it does not fit.
struct Function {
  std::string name, doc;
  size_t arity = 0;
  std::vector<Parameter> parameters;
  void* target = nullptr;
  bool (*call)(const Function&, PyObject* const* arguments, Ref& result) = nullptr;
  Function* next = nullptr;
  PyObject* owner = nullptr;
  MethodDefinition definition{};
};

// What an argument of type T is kept in while the function runs.
template <class T>
struct Held {
  T value{};
  bool read(PyObject* object) { return Value<T>::from(object, value); }
  T& give() { return value; }
};
template <class T>
struct Held<c10::ArrayRef<T>> {
  std::vector<T> all;
  c10::ArrayRef<T> value;
  bool read(PyObject* object) { return Value<std::vector<T>>::from(object, all); }
  c10::ArrayRef<T>& give() { return value = c10::ArrayRef<T>(all); }
};

template <class R, class... A>
struct Caller {
  // Reads a target's parameters out of Python's arguments and hands back what it gives; false where they do not fit.
  template <class F, size_t... I>
  static bool answer(const F& target, PyObject* const* arguments, Ref& result, std::index_sequence<I...>) {
    std::tuple<Held<std::decay_t<A>>...> held;
    if (!(std::get<I>(held).read(arguments[I]) && ...)) return false;
    if constexpr (std::is_void<R>::value) {
      target(static_cast<A&&>(std::get<I>(held).give())...);
      result = none();
    } else {
      result = to_python(target(static_cast<A&&>(std::get<I>(held).give())...));
    }
    return true;
  }
  template <class F>
  static bool answer(const F& target, PyObject* const* arguments, Ref& result) {
    return answer(target, arguments, result, std::index_sequence_for<A...>());
  }
  static bool call(const Function& function, PyObject* const* arguments, Ref& result) {
    return answer(reinterpret_cast<R (*)(A...)>(function.target), arguments, result);
  }
};

// Puts a function into a module, or a method into a class; one of the same name is tried after it.
void add(PyObject* owner, Function* function, bool is_method = false);
// Makes a module and has it filled; what goes wrong is raised in Python.
PyObject* make_module(const char* name, void (*fill)(PyObject*));

}  // namespace slim

namespace pybind11 {

// `py::arg("name")`, and `py::arg("name") = value`.
struct arg {
  slim::Parameter parameter;
  explicit arg(const char* name) : parameter{name, slim::Ref()} {}
  template <class T>
  arg operator=(T&& value) const {
    arg it = *this;
    it.parameter.otherwise = slim::to_python(value);
    return it;
  }
};
namespace literals {
inline arg operator""_a(const char* name, size_t) { return arg(name); }
}  // namespace literals

inline slim::Ref none() { return slim::none(); }
struct gil_scoped_release {};
template <class...>
struct call_guard {};
enum class return_value_policy { automatic, copy, move, reference, take_ownership };

// What a definition says beside its name and its function.
inline void describe(slim::Function& function, const char* doc) { function.doc = doc; }
inline void describe(slim::Function& function, const arg& given) { function.parameters.push_back(given.parameter); }
inline void describe(slim::Function&, return_value_policy) {}
template <class... G>
void describe(slim::Function&, call_guard<G...>) {}
// How many of them name a parameter.
template <class... Extra>
constexpr size_t named() {
  return (size_t(0) + ... + size_t(std::is_same<Extra, arg>::value));
}

class module_ {
 public:
  explicit module_(PyObject* object) : object_(object) {}

  template <class R, class... A, class... Extra>
  module_& def(const char* name, R (*target)(A...), const Extra&... extra) {
    static_assert(!named<Extra...>() || named<Extra...>() == sizeof...(A), "a name for each parameter, or for none");
    slim::Function* function = new slim::Function;  // lives as long as the process, as modules do
    function->name = name;
    function->arity = sizeof...(A);
    function->target = reinterpret_cast<void*>(target);
    function->call = &slim::Caller<R, A...>::call;
    (describe(*function, extra), ...);
    slim::add(object_, function);
    return *this;
  }
  template <class F, class... Extra, class = decltype(&F::operator())>
  module_& def(const char* name, const F& lambda, const Extra&... extra) {
    return def(name, +lambda, extra...);
  }
  const char*& doc() { return doc_; }
  PyObject* ptr() const { return object_; }

 private:
  PyObject* object_;
  const char* doc_ = nullptr;
};
using module = module_;

}  // namespace pybind11
namespace py = pybind11;
#pragma GCC visibility pop
#include "class.h"

// The exported function makes the module; the loader calls it by the name that the module was asked for.
#define SLIM_TEXT_OF(name) #name
#define SLIM_TEXT(name) SLIM_TEXT_OF(name)
#define SLIM_JOIN_OF(a, b) a##b
#define SLIM_JOIN(a, b) SLIM_JOIN_OF(a, b)
#define PYBIND11_MODULE(name, variable)                                                         \
  static void SLIM_JOIN(slim_fill_, name)(::pybind11::module_&);                                \
  extern "C" __attribute__((visibility("default"))) PyObject* SLIM_JOIN(slim_module_, name)() { \
    return ::slim::make_module(SLIM_TEXT(name), [](PyObject* made) {                            \
      ::pybind11::module_ filled(made);                                                         \
      SLIM_JOIN(slim_fill_, name)(filled);                                                      \
    });                                                                                         \
  }                                                                                             \
  static void SLIM_JOIN(slim_fill_, name)([[maybe_unused]] ::pybind11::module_ & variable)
