// How does Python see an extension's classes?
//
// A class is a plain Python class, and each object of it holds the C++ object in a capsule. What pybind11 does for an
// extension, of which this offers `py::class_` with `py::init` and methods; an object is no argument of another's.
#pragma once
#include <functional>
#include <memory>
#include <typeinfo>

#pragma GCC visibility push(hidden)

namespace slim {

// Makes a class of this name in a module.
PyObject* make_class(PyObject* module, const char* name);
// Gives an object what it holds, in the place of what it held.
void hold(PyObject* object, void* what, const char* type, void (*drop)(PyObject*));
// What an object holds, if it is of this type.
void* held_by(PyObject* object, const char* type);

template <class T>
T* object(PyObject* of) {
  return static_cast<T*>(held_by(of, typeid(T).name()));
}
template <class T>
void drop(PyObject* capsule) {
  delete static_cast<T*>(PyCapsule_GetPointer(capsule, typeid(T).name()));
}

template <class T, class... A>
struct Maker {
  static bool call(const Function&, PyObject* const* arguments, Ref& result) {
    const auto make = [self = arguments[0]](A&&... all) {
      hold(self, new T(static_cast<A&&>(all)...), typeid(T).name(), &drop<T>);
    };
    return Caller<void, A...>::answer(make, arguments + 1, result);
  }
};

// Calls what `target` points to, a method of T or a function whose first parameter is one, on the object and the rest.
template <class T, class F, class R, class... A>
struct MethodCaller {
  static bool call(const Function& function, PyObject* const* arguments, Ref& result) {
    T* self = object<T>(arguments[0]);
    const F& target = *static_cast<const F*>(function.target);
    const auto on_it = [&](A&&... all) -> R { return std::invoke(target, *self, static_cast<A&&>(all)...); };
    return self && Caller<R, A...>::answer(on_it, arguments + 1, result);
  }
};

}  // namespace slim

namespace pybind11 {

template <class... A>
struct init {};

template <class T, class... Holder>
class class_ {
 public:
  class_(const module_& module, const char* name) : object_(slim::make_class(module.ptr(), name)) {}

  template <class... A, class... Extra>
  class_& def(init<A...>, const Extra&... extra) {
    return put<sizeof...(A)>("__init__", nullptr, &slim::Maker<T, A...>::call, extra...);
  }
  template <class R, class... A, class... Extra>
  class_& def(const char* name, R (T::*method)(A...), const Extra&... extra) {
    return put_call<R, A...>(name, method, extra...);
  }
  template <class R, class... A, class... Extra>
  class_& def(const char* name, R (T::*method)(A...) const, const Extra&... extra) {
    return put_call<R, A...>(name, method, extra...);
  }
  template <class R, class Self, class... A, class... Extra>
  class_& def(const char* name, R (*function)(Self, A...), const Extra&... extra) {
    static_assert(std::is_same<std::decay_t<Self>, T>::value, "the first parameter is the object");
    return put_call<R, A...>(name, function, extra...);
  }
  template <class F, class... Extra, class = decltype(&F::operator())>
  class_& def(const char* name, const F& lambda, const Extra&... extra) {
    return def(name, +lambda, extra...);
  }

 private:
  PyObject* object_;

  template <class R, class... A, class F, class... Extra>
  class_& put_call(const char* name, F target, const Extra&... extra) {
    return put<sizeof...(A)>(name, new F(target), &slim::MethodCaller<T, F, R, A...>::call, extra...);
  }
  template <size_t Arity, class... Extra>
  class_& put(const char* name, void* target, decltype(slim::Function::call) call, const Extra&... extra) {
    static_assert(!named<Extra...>() || named<Extra...>() == Arity, "a name for each parameter, or for none");
    slim::Function* function = new slim::Function;
    function->name = name;
    function->arity = Arity + 1;
    function->target = target;
    function->call = call;
    (describe(*function, extra), ...);
    if (!function->parameters.empty()) function->parameters.insert(function->parameters.begin(), {"self", slim::Ref()});
    slim::add(object_, function, true);
    return *this;
  }
};

}  // namespace pybind11
#pragma GCC visibility pop
