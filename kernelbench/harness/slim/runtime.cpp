// What of the slim headers is no template: compiled beside every extension, with optimization whatever its own flags
// are.
#include "slim.h"

#include "module.h"

namespace slim {
namespace {

[[noreturn]] void throw_raised() {
  PyObject *type = nullptr, *value = nullptr, *trace = nullptr;
  PyErr_Fetch(&type, &value, &trace);
  const Ref said(value ? PyObject_Str(value) : nullptr);
  const char* text = said ? PyUnicode_AsUTF8AndSize(said.get(), nullptr) : nullptr;
  const std::string message = text ? text : "an error in Python";
  PyErr_Clear();
  throw Raised(message, Ref(type), Ref(value), Ref(trace));
}

// Whether nothing was raised; what was is forgotten.
bool went_well() {
  if (!PyErr_Occurred()) return true;
  PyErr_Clear();
  return false;
}

}  // namespace

Ref owned(PyObject* result) {
  if (!result) throw_raised();
  return Ref(result);
}

Ref attribute(PyObject* object, PyObject* name) { return owned(PyObject_GetAttr(object, name)); }

PyObject* torch_module() {
  static PyObject* const module = owned(PyImport_ImportModule("torch")).release();
  return module;
}

Ref call_method(PyObject* object, PyObject* name, const Ref* all, size_t count) {
  PyObject* plain[8] = {object};
  if (count > 8) fail("", "a method was given too many arguments");
  for (size_t i = 1; i < count; i++) plain[i] = all[i].get();
  return owned(PyObject_VectorcallMethod(name, plain, count, nullptr));
}

PyObject* dtype_object(c10::ScalarType type) {
  static PyObject* known[128] = {};
  PyObject*& object = known[static_cast<int>(type)];
  if (object) return object;
  const char* name = nullptr;
  switch (type) {
#define SLIM_NAME_OF(T, constant, python) \
  case c10::ScalarType::constant:         \
    name = python;                        \
    break;
    SLIM_FORALL_TYPES(SLIM_NAME_OF)
#undef SLIM_NAME_OF
    default:
      fail("", "an element type that this build does not know");
  }
  return object = owned(PyObject_GetAttrString(torch_module(), name)).release();
}

bool read_type(PyObject* object, c10::ScalarType& type) {
  static constexpr c10::ScalarType usual[] = {c10::kFloat, c10::kHalf,   c10::kBFloat16,      c10::kLong,
                                              c10::kInt,   c10::kDouble, c10::kBool,          c10::kByte,
                                              c10::kChar,  c10::kShort,  c10::kFloat8_e4m3fn, c10::kFloat8_e5m2};
  // A torch before 2.1 has no element of eight bits, and no tensor of them either.
  static const size_t known = std::size(usual) - (PyObject_HasAttrString(torch_module(), "float8_e4m3fn") ? 0 : 2);
  for (size_t i = 0; i < known; i++) {
    if (dtype_object(usual[i]) == object) {
      type = usual[i];
      return true;
    }
  }
  return false;
}

bool read_whole(PyObject* object, bool is_signed, long long& value) {
  if (!PyIndex_Check(object)) return false;
  const Ref index(PyNumber_Index(object));
  if (!index) return went_well();
  value = is_signed ? PyLong_AsLongLong(index.get()) : static_cast<long long>(PyLong_AsUnsignedLongLong(index.get()));
  return went_well();
}

bool read_real(PyObject* object, double& value) {
  if (!PyNumber_Check(object)) return false;
  value = PyFloat_AsDouble(object);
  return went_well();
}

bool read_text(PyObject* object, std::string& value) {
  ssize_t length = 0;
  if (!is_a(object, PyUnicode_Type)) return false;
  const char* text = PyUnicode_AsUTF8AndSize(object, &length);
  if (text) value.assign(text, static_cast<size_t>(length));
  return went_well() && text;
}

bool read_truth(PyObject* object, bool& value) {
  if (!is_a(object, PyBool_Type)) return false;
  value = PyObject_IsTrue(object) == 1;
  return true;
}

Ref Value<c10::Scalar>::to(const c10::Scalar& value) {
  if (value.isFloatingPoint()) return to_python(value.toDouble());
  return value.isBoolean() ? to_python(value.toBool()) : to_python(value.toLong());
}

bool Value<c10::Scalar>::from(PyObject* object, c10::Scalar& value) {
  bool truth = false;
  long long whole = 0;
  double real = 0;
  if (read_truth(object, truth)) return value = truth, true;
  if (is_a(object, PyFloat_Type) && read_real(object, real)) return value = real, true;
  if (!read_whole(object, true, whole)) return false;
  value = whole;
  return true;
}

// A device's name is read by torch at every use, so the objects are kept.
Ref Value<c10::Device>::to(const c10::Device& value) {
  static PyObject* known[2][65] = {};
  const int index = value.index() + 1;
  if (!(value.is_cpu() || value.is_cuda()) || index > 64) fail("", "a device that this build does not know");
  PyObject*& object = known[value.is_cuda()][index];
  if (!object) object = method(torch_module(), SLIM_NAME("device"), value.str()).release();
  return Ref::borrowed(object);
}

bool Value<c10::Device>::from(PyObject* object, c10::Device& value) {
  const Ref said(PyObject_Str(object));
  std::string name;
  if (!said || !read_text(said.get(), name)) return PyErr_Clear(), false;
  if (name.compare(0, 3, "cpu") != 0 && name.compare(0, 4, "cuda") != 0) return false;
  value = c10::Device(name);
  return true;
}

Ref Value<c10::MemoryFormat>::to(c10::MemoryFormat value) {
  const char* names[] = {"contiguous_format", "preserve_format", "channels_last", "channels_last_3d"};
  return owned(PyObject_GetAttrString(torch_module(), names[static_cast<int>(value)]));
}

namespace {

void read_list(const Ref& tuple, std::vector<int64_t>& list) {
  const ssize_t length = PyTuple_Size(tuple.get());
  list.resize(length < 0 ? 0 : static_cast<size_t>(length));
  for (size_t i = 0; i < list.size(); i++)
    list[i] = PyLong_AsLongLong(PyTuple_GetItem(tuple.get(), static_cast<ssize_t>(i)));
}

}  // namespace

// All that live, by their neighbours; Python's lock is held wherever one comes or goes.
static Facts* newest = nullptr;

Facts::Facts(Ref tensor) : object(std::move(tensor)) {
  read();
  before = newest;
  if (before) before->after = this;
  newest = this;
}

Facts::~Facts() {
  if (before) before->after = after;
  (after ? after->before : newest) = before;
}

// Whether other memory lies under the object now, or of another shape.
bool Facts::moved() const {
  const Ref now = method(object.get(), SLIM_NAME("data_ptr")), shape = attribute(object.get(), SLIM_NAME("shape"));
  if (reinterpret_cast<void*>(PyLong_AsUnsignedLongLong(now.get())) != data) return true;
  if (PyTuple_Size(shape.get()) != static_cast<ssize_t>(sizes.size())) return true;
  for (size_t i = 0; i < sizes.size(); i++)
    if (PyLong_AsLongLong(PyTuple_GetItem(shape.get(), static_cast<ssize_t>(i))) != sizes[i]) return true;
  return false;
}

void Facts::read() {
  PyObject* it = object.get();
  numel = 1;
  type = c10::ScalarType::Undefined;
  device = c10::Device();
  read_list(attribute(it, SLIM_NAME("shape")), sizes);
  read_list(method(it, SLIM_NAME("stride")), strides);
  for (int64_t size : sizes) numel *= size;
  read_type(attribute(it, SLIM_NAME("dtype")).get(), type);
  const int64_t index = PyLong_AsLongLong(method(it, SLIM_NAME("get_device")).get());
  if (index >= 0) {
    const bool on_gpu = PyObject_IsTrue(attribute(it, SLIM_NAME("is_cuda")).get()) == 1;
    device = c10::Device(on_gpu ? c10::kCUDA : c10::DeviceType::Other, static_cast<c10::DeviceIndex>(index));
  }
  data = reinterpret_cast<void*>(PyLong_AsUnsignedLongLong(method(it, SLIM_NAME("data_ptr")).get()));
}

Ref Value<at::Tensor>::to(const at::Tensor& value) { return value.defined() ? Ref::borrowed(value.object()) : none(); }

bool Value<at::Tensor>::from(PyObject* object, at::Tensor& value) {
  static PyObject* const type = owned(PyObject_GetAttrString(torch_module(), "Tensor")).release();
  if (PyObject_IsInstance(object, type) != 1) return false;
  value = at::Tensor(Ref::borrowed(object));
  return true;
}

at::Tensor make_of(PyObject* name, const c10::TensorOptions& options, Ref* all, size_t count) {
  Ref keys(PyTuple_New(options.has_dtype() + options.has_device() + options.requires_grad()));
  size_t given = 0;
  const auto add = [&](PyObject* key, Ref value) {
    PyTuple_SetItem(keys.get(), static_cast<ssize_t>(given), Ref::borrowed(key).release());
    all[count + given++] = std::move(value);
  };
  if (options.has_dtype()) add(SLIM_NAME("dtype"), to_python(options.dtype()));
  if (options.has_device()) add(SLIM_NAME("device"), to_python(options.device()));
  if (options.requires_grad()) add(SLIM_NAME("requires_grad"), to_python(true));
  PyObject* plain[8];
  if (count + given > 8) fail("", "a function was given too many arguments");
  for (size_t i = 0; i < count + given; i++) plain[i] = all[i].get();
  const Ref callable = attribute(torch_module(), name);
  return at::Tensor(owned(PyObject_Vectorcall(callable.get(), plain, count, given ? keys.get() : nullptr)));
}

namespace {

size_t place(const Function& function, PyObject* name) {
  for (size_t i = 0; i < function.parameters.size(); i++)
    if (PyUnicode_CompareWithASCIIString(name, function.parameters[i].name.c_str()) == 0) return i;
  return function.arity;
}

// The arguments in order, from those given by position and by name and those that have a default.
bool arrange(const Function& function, PyObject* const* given, size_t count, PyObject* names, PyObject** slots) {
  const size_t named = names ? static_cast<size_t>(PyTuple_Size(names)) : 0;
  if (count > function.arity) return false;
  for (size_t i = 0; i < function.arity; i++) slots[i] = i < count ? given[i] : nullptr;
  for (size_t i = 0; i < named; i++) {
    const size_t at = place(function, PyTuple_GetItem(names, static_cast<ssize_t>(i)));
    if (at == function.arity || slots[at]) return false;
    slots[at] = given[count + i];
  }
  for (size_t i = 0; i < function.arity; i++) {
    if (!slots[i] && i < function.parameters.size()) slots[i] = function.parameters[i].otherwise.get();
    if (!slots[i]) return false;
  }
  return true;
}

PyObject* call_any(const Function* first, PyObject* const* given, ssize_t count, PyObject* names) {
  PyObject* slots[most_parameters];
  for (const Function* function = first; function; function = function->next) {
    Ref result;
    if (!arrange(*function, given, static_cast<size_t>(count), names, slots)) continue;
    if (function->call(*function, slots, result)) return result.release();
  }
  const std::string said = first->name + "(): incompatible function arguments";
  PyErr_SetString(PyExc_TypeError, said.c_str());
  return nullptr;
}

void raise(const std::exception& error) {
  PyObject* type = PyExc_RuntimeError;
  if (dynamic_cast<const std::bad_alloc*>(&error)) type = PyExc_MemoryError;
  if (dynamic_cast<const std::out_of_range*>(&error)) type = PyExc_IndexError;
  if (dynamic_cast<const c10::IndexError*>(&error)) type = PyExc_IndexError;
  if (dynamic_cast<const std::invalid_argument*>(&error)) type = PyExc_ValueError;
  PyErr_SetString(type, error.what());
}

// The entry of every function of every extension.
PyObject* enter(PyObject* self, PyObject* const* given, ssize_t count, PyObject* names) {
  try {
    for (Facts* each = newest; each; each = each->before)
      if (each->moved()) each->read();
    return call_any(static_cast<const Function*>(PyCapsule_GetPointer(self, nullptr)), given, count, names);
  } catch (const Raised& raised) {
    raised.restore();
  } catch (const std::exception& error) {
    raise(error);
  } catch (...) {
    PyErr_SetString(PyExc_RuntimeError, "Caught an unknown exception!");
  }
  return nullptr;
}

}  // namespace

void add(PyObject* owner, Function* function, bool is_method) {
  static std::vector<Function*> all;
  if (function->arity > most_parameters) fail("", "a function has too many parameters");
  for (Function* known : all) {
    if (known->owner == owner && known->name == function->name) {
      while (true) {
        // Which of two fits better is for torch's own to say.
        if (is_method && known->arity == function->arity) fail("", "two methods of one name and as many parameters");
        if (!known->next) break;
        known = known->next;
      }
      known->next = function;
      return;
    }
  }
  function->owner = owner;
  all.push_back(function);
  function->definition = {function->name.c_str(), reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(&enter)),
                          fast_call_with_names, function->doc.c_str()};
  const Ref self = owned(PyCapsule_New(function, nullptr, nullptr));
  Ref made = owned(PyCMethod_New(reinterpret_cast<PyMethodDef*>(&function->definition), self.get(), nullptr, nullptr));
  if (is_method) made = owned(PyInstanceMethod_New(made.get()));
  PyObject_SetAttrString(owner, function->name.c_str(), made.get());
}

PyObject* make_class(PyObject* module, const char* name) {
  // As pybind11's, an object takes no other attributes, and no copy of it.
  const Ref text(PyUnicode_FromString(name)), bases(PyTuple_New(0)), content(PyDict_New());
  const Ref slots = owned(PyTuple_New(2));
  PyTuple_SetItem(slots.get(), 0, PyUnicode_FromString("_held"));
  PyTuple_SetItem(slots.get(), 1, PyUnicode_FromString("__weakref__"));
  if (PyDict_SetItemString(content.get(), "__slots__", slots.get()) != 0) owned(nullptr);
  if (PyDict_SetItemString(content.get(), "__reduce_ex__", none().get()) != 0) owned(nullptr);
  PyObject* const all[] = {text.get(), bases.get(), content.get()};
  Ref made = owned(PyObject_Vectorcall(reinterpret_cast<PyObject*>(&PyType_Type), all, 3, nullptr));
  PyObject_SetAttrString(module, name, made.get());
  return made.release();  // lives as long as the process, as modules do
}

void hold(PyObject* object, void* what, const char* type, void (*drop)(PyObject*)) {
  const Ref capsule = owned(PyCapsule_New(what, type, drop));
  if (PyObject_SetAttrString(object, "_held", capsule.get()) != 0) owned(nullptr);
}

void* held_by(PyObject* object, const char* type) {
  const Ref capsule(PyObject_GetAttr(object, SLIM_NAME("_held")));
  void* held = capsule ? PyCapsule_GetPointer(capsule.get(), type) : nullptr;
  if (!held) PyErr_Clear();
  return held;
}

PyObject* make_module(const char* name, void (*fill)(PyObject*)) {
  try {
    Ref made = owned(PyModule_New(name));
    fill(made.get());
    return made.release();
  } catch (const std::exception& error) {
    raise(error);
    return nullptr;
  }
}

}  // namespace slim

namespace at {

Tensor::Tensor(slim::Ref object) : facts_(new slim::Facts(std::move(object))) {}

Tensor::~Tensor() {
  if (facts_ && __atomic_sub_fetch(&facts_->holders, 1, __ATOMIC_ACQ_REL) == 0) delete facts_;
}

bool Tensor::is_contiguous() const {
  const std::vector<int64_t>&sizes = facts().sizes, &strides = facts().strides;
  int64_t expected = 1;
  for (size_t i = sizes.size(); i-- > 0; expected *= sizes[i])
    if (sizes[i] != 1 && strides[i] != expected) return facts().numel == 0;
  return true;
}

size_t Tensor::wrapped(int64_t axis) const {
  const int64_t axes = dim();
  if (axis < -axes || axis >= axes)
    throw c10::IndexError(slim::text("Dimension out of range (expected to be in range of [", -axes, ", ", axes - 1,
                                     "], but got ", axis, ")"));
  return static_cast<size_t>(axis < 0 ? axis + axes : axis);
}

}  // namespace at
