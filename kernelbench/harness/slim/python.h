// Which of Python's C interface is used, and how are its references counted?
//
// Declared here and not included, for Python.h costs a compiler more than all of this. Only what the stable interface
// promises, so that one text serves every version.
#pragma once

extern "C" {
typedef struct _object PyObject;
typedef PyObject* (*PyCFunction)(PyObject*, PyObject*);
void Py_IncRef(PyObject*);
void Py_DecRef(PyObject*);
int Py_IsInitialized(void);
PyObject* PyImport_ImportModule(const char*);
PyObject* PyObject_GetAttr(PyObject*, PyObject*);
PyObject* PyObject_GetAttrString(PyObject*, const char*);
int PyObject_HasAttrString(PyObject*, const char*);
int PyObject_SetAttrString(PyObject*, const char*, PyObject*);
PyObject* PyObject_GetItem(PyObject*, PyObject*);
PyObject* PyObject_Str(PyObject*);
int PyObject_IsTrue(PyObject*);
int PyObject_IsInstance(PyObject*, PyObject*);
PyObject* PyObject_VectorcallMethod(PyObject*, PyObject* const*, size_t, PyObject*);
PyObject* PyObject_Vectorcall(PyObject*, PyObject* const*, size_t, PyObject*);
PyObject* PyUnicode_FromString(const char*);
PyObject* PyUnicode_FromStringAndSize(const char*, ssize_t);
PyObject* PyUnicode_InternFromString(const char*);
const char* PyUnicode_AsUTF8AndSize(PyObject*, ssize_t*);
int PyUnicode_Compare(PyObject*, PyObject*);
int PyUnicode_CompareWithASCIIString(PyObject*, const char*);
PyObject* PyLong_FromLongLong(long long);
PyObject* PyLong_FromUnsignedLongLong(unsigned long long);
long long PyLong_AsLongLong(PyObject*);
unsigned long long PyLong_AsUnsignedLongLong(PyObject*);
PyObject* PyFloat_FromDouble(double);
double PyFloat_AsDouble(PyObject*);
PyObject* PyBool_FromLong(long);
PyObject* PyNumber_Index(PyObject*);
int PyIndex_Check(PyObject*);
int PyNumber_Check(PyObject*);
PyObject* PyTuple_New(ssize_t);
ssize_t PyTuple_Size(PyObject*);
PyObject* PyTuple_GetItem(PyObject*, ssize_t);
int PyTuple_SetItem(PyObject*, ssize_t, PyObject*);
PyObject* PyList_New(ssize_t);
int PyList_SetItem(PyObject*, ssize_t, PyObject*);
int PySequence_Check(PyObject*);
ssize_t PySequence_Size(PyObject*);
PyObject* PySequence_GetItem(PyObject*, ssize_t);
PyObject* PyNumber_Add(PyObject*, PyObject*);
PyObject* PyNumber_Subtract(PyObject*, PyObject*);
PyObject* PyNumber_Multiply(PyObject*, PyObject*);
PyObject* PyNumber_TrueDivide(PyObject*, PyObject*);
PyObject* PyNumber_Negative(PyObject*);
PyObject* PyDict_New(void);
int PyDict_SetItemString(PyObject*, const char*, PyObject*);
PyObject* PyModule_New(const char*);
// Not of the stable interface, and in every Python since 3.0; a Python without it leaves the extension to torch's own.
PyObject* PyInstanceMethod_New(PyObject*);
PyObject* PyCMethod_New(struct PyMethodDef*, PyObject*, PyObject*, struct _typeobject*);
PyObject* PyCapsule_New(void*, const char*, void (*)(PyObject*));
void* PyCapsule_GetPointer(PyObject*, const char*);
void PyErr_SetString(PyObject*, const char*);
void PyErr_Fetch(PyObject**, PyObject**, PyObject**);
void PyErr_Restore(PyObject*, PyObject*, PyObject*);
PyObject* PyErr_Occurred(void);
void PyErr_Clear(void);
extern PyObject* PyExc_RuntimeError;
extern PyObject* PyExc_ValueError;
extern PyObject* PyExc_IndexError;
extern PyObject* PyExc_TypeError;
extern PyObject* PyExc_MemoryError;
extern struct _typeobject PyType_Type;
extern struct _typeobject PyFloat_Type;
extern struct _typeobject PyBool_Type;
extern struct _typeobject PyUnicode_Type;
extern PyObject _Py_NoneStruct;
}

#pragma GCC visibility push(hidden)
namespace slim {

// One reference of ours to a Python object, or none.
class Ref {
 public:
  Ref() = default;
  explicit Ref(PyObject* owned) : object_(owned) {}
  static Ref borrowed(PyObject* object) {
    Py_IncRef(object);
    return Ref(object);
  }
  Ref(const Ref& other) : object_(other.object_) { Py_IncRef(object_); }
  Ref(Ref&& other) noexcept : object_(other.object_) { other.object_ = nullptr; }
  Ref& operator=(Ref other) noexcept {
    PyObject* mine = object_;
    object_ = other.object_;
    other.object_ = mine;
    return *this;
  }
  // What outlives Python, such as a static variable's value, is left alone.
  ~Ref() {
    if (object_ && Py_IsInitialized()) Py_DecRef(object_);
  }
  PyObject* get() const { return object_; }
  explicit operator bool() const { return object_ != nullptr; }
  PyObject* release() {
    PyObject* mine = object_;
    object_ = nullptr;
    return mine;
  }

 private:
  PyObject* object_ = nullptr;
};

inline Ref none() { return Ref::borrowed(&_Py_NoneStruct); }
inline bool is_none(PyObject* object) { return object == &_Py_NoneStruct; }
inline bool is_a(PyObject* object, struct _typeobject& type) {
  return PyObject_IsInstance(object, reinterpret_cast<PyObject*>(&type)) == 1;
}

}  // namespace slim
#pragma GCC visibility pop

// A name that Python looks up by its address.
#define SLIM_NAME(text)                                             \
  ([]() -> PyObject* {                                              \
    static PyObject* const name = PyUnicode_InternFromString(text); \
    return name;                                                    \
  }())
