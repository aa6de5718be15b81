// Which of two functions serves a call, decided once for each signature and remembered: what guard.py says in Python.
//
// A signature is the shape, strides, type and device of each array. Where arrays lie is looked at with each call. Nothing
// here touches the GPU: what a CUDA graph captures is the kernel that was chosen, and replaying it asks nobody.
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>
#include <torch/csrc/autograd/python_variable.h>

#include <array>
#include <cstring>
#include <string>
#include <unordered_map>
#include <vector>

namespace {

// The first reasons; what the judge in Python says comes behind them.
enum { HIT, ARGUMENTS, ALIGNMENT, OVERLAP, SWITCHED_OFF, NOT_IN_PLACE };
const char *const REASONS[] = {"hit", "arguments", "alignment", "overlap", "switched off", "not in place"};
constexpr size_t MOST_WORDS = 96, MOST_ARRAYS = 16, MOST_KNOWN = 4096;

struct Signature {
    std::array<int64_t, MOST_WORDS> words;
    size_t length = 0;
    bool add(int64_t word) {
        if (length == MOST_WORDS) return false;
        words[length++] = word;
        return true;
    }
    bool operator==(const Signature &other) const {
        return length == other.length && !std::memcmp(words.data(), other.words.data(), length * sizeof(int64_t));
    }
};

struct Hash {
    size_t operator()(const Signature &one) const {
        uint64_t hash = one.length;
        for (size_t i = 0; i < one.length; ++i) {
            hash = (hash ^ (uint64_t)one.words[i]) * 0x9e3779b97f4a7c15u;
            hash ^= hash >> 29;
        }
        return hash;
    }
};

struct Guard {
    PyObject_HEAD
    PyObject *judge;
    uint64_t alignment;
    // Whether the kernel may serve at all, for comparisons in one process.
    bool ours;
    // Of each array, by its place among the parameters.
    std::vector<Py_ssize_t> *places;
    std::vector<PyObject *> *parameters;
    std::vector<std::string> *reasons;
    std::vector<uint64_t> *counts;
    std::unordered_map<Signature, int, Hash> *known;
};

int reason_of(Guard *guard, PyObject *said) {
    const char *text = PyUnicode_AsUTF8(said);
    if (!text) return -1;
    auto &reasons = *guard->reasons;
    for (size_t i = 0; i < reasons.size(); ++i)
        if (reasons[i] == text) return (int)i;
    reasons.push_back(text);
    guard->counts->push_back(0);
    return (int)reasons.size() - 1;
}

// Asks Python, which knows the rule.
int judged(Guard *guard, PyObject *const *arrays, size_t count) {
    PyObject *said = PyObject_Vectorcall(guard->judge, arrays, count, nullptr);
    if (!said) return -1;
    int reason = said == Py_None ? HIT : reason_of(guard, said);
    Py_DECREF(said);
    return reason;
}

// Why the original must serve a call with these arguments: HIT if it need not, -1 with an error of Python.
int verdict(Guard *guard, PyObject *const *arguments) {
    if (!guard->ours) return SWITCHED_OFF;
    const size_t count = guard->places->size();
    PyObject *arrays[MOST_ARRAYS];
    uint64_t starts[MOST_ARRAYS], ends[MOST_ARRAYS];
    Signature signature;
    bool whole = true;
    try {
        for (size_t i = 0; i < count; ++i) {
            PyObject *array = arrays[i] = arguments[(*guard->places)[i]];
            if (!array || !PyType_IsSubtype(Py_TYPE(array), (PyTypeObject *)THPVariableClass)) return ARGUMENTS;
            const at::Tensor &tensor = THPVariable_Unpack(array);
            if (!tensor.defined() || tensor.layout() != c10::kStrided || !tensor.has_storage()) return ARGUMENTS;
            const auto sizes = tensor.sizes(), strides = tensor.strides();
            const c10::Device device = tensor.device();
            whole &= signature.add((int64_t)tensor.scalar_type() | (int64_t)device.type() << 8 |
                                   (int64_t)(uint8_t)device.index() << 16 | (int64_t)sizes.size() << 32);
            for (int64_t size : sizes) whole &= signature.add(size);
            for (int64_t stride : strides) whole &= signature.add(stride);
            starts[i] = (uint64_t)tensor.data_ptr();
            ends[i] = starts[i] + (uint64_t)tensor.numel() * tensor.element_size();
        }
    } catch (const std::exception &) {
        // One that has no memory, such as those that only stand for others while a model is traced.
        return ARGUMENTS;
    }
    int reason;
    const auto found = whole ? guard->known->find(signature) : guard->known->end();
    if (found != guard->known->end()) {
        reason = found->second;
    } else {
        reason = judged(guard, arrays, count);
        if (reason >= 0 && whole && guard->known->size() < MOST_KNOWN) guard->known->emplace(signature, reason);
    }
    if (reason != HIT) return reason;
    for (size_t i = 0; i < count; ++i) {
        if (starts[i] % guard->alignment) return ALIGNMENT;
        for (size_t j = 0; j < i; ++j)
            if (starts[i] < ends[j] && starts[j] < ends[i]) return OVERLAP;
    }
    return HIT;
}

// The arguments by place, those given by name too; false where one is not known or given twice.
bool placed(Guard *guard, PyObject *const *given, Py_ssize_t count, PyObject *names, std::vector<PyObject *> &arguments) {
    const auto &parameters = *guard->parameters;
    arguments.assign(parameters.size(), nullptr);
    if ((size_t)count > parameters.size()) return false;
    std::copy(given, given + count, arguments.begin());
    for (Py_ssize_t i = 0; names && i < PyTuple_GET_SIZE(names); ++i) {
        PyObject *name = PyTuple_GET_ITEM(names, i);
        size_t place = 0;
        while (place < parameters.size() && parameters[place] != name && PyUnicode_Compare(parameters[place], name))
            ++place;
        if (place == parameters.size() || arguments[place]) return false;
        arguments[place] = given[count + i];
    }
    return true;
}

// Guard(judge, parameters, arrays, alignment)
PyObject *guard_new(PyTypeObject *type, PyObject *args, PyObject *) {
    PyObject *judge, *parameters, *arrays;
    unsigned long long alignment;
    if (!PyArg_ParseTuple(args, "OO!O!K", &judge, &PyTuple_Type, &parameters, &PyTuple_Type, &arrays, &alignment))
        return nullptr;
    std::vector<Py_ssize_t> places;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(arrays); ++i) {
        const Py_ssize_t place = PySequence_Index(parameters, PyTuple_GET_ITEM(arrays, i));
        if (place < 0) return nullptr;
        places.push_back(place);
    }
    if (places.size() > MOST_ARRAYS || !alignment) {
        PyErr_SetString(PyExc_ValueError, "too many arrays, or no alignment");
        return nullptr;
    }
    auto *guard = (Guard *)type->tp_alloc(type, 0);
    if (!guard) return nullptr;
    guard->judge = Py_NewRef(judge);
    guard->alignment = alignment;
    guard->ours = true;
    guard->places = new std::vector<Py_ssize_t>(places);
    guard->parameters = new std::vector<PyObject *>;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(parameters); ++i)
        guard->parameters->push_back(Py_NewRef(PyTuple_GET_ITEM(parameters, i)));
    guard->reasons = new std::vector<std::string>(std::begin(REASONS), std::end(REASONS));
    guard->counts = new std::vector<uint64_t>(guard->reasons->size());
    guard->known = new std::unordered_map<Signature, int, Hash>;
    return (PyObject *)guard;
}

void guard_free(PyObject *self) {
    auto *guard = (Guard *)self;
    Py_XDECREF(guard->judge);
    for (PyObject *name : *guard->parameters) Py_DECREF(name);
    delete guard->places;
    delete guard->parameters;
    delete guard->reasons;
    delete guard->counts;
    delete guard->known;
    Py_TYPE(self)->tp_free(self);
}

// Why the original must serve such a call, or None; nothing is counted.
PyObject *guard_refuses(PyObject *self, PyObject *const *given, Py_ssize_t count, PyObject *names) {
    auto *guard = (Guard *)self;
    std::vector<PyObject *> arguments;
    const int reason = placed(guard, given, count, names, arguments) ? verdict(guard, arguments.data()) : ARGUMENTS;
    if (reason < 0) return nullptr;
    if (reason == HIT) Py_RETURN_NONE;
    return PyUnicode_FromString((*guard->reasons)[reason].c_str());
}

// How often, by reason.
PyObject *guard_counts(PyObject *self, PyObject *) {
    auto *guard = (Guard *)self;
    PyObject *told = PyDict_New();
    for (size_t i = 0; told && i < guard->reasons->size(); ++i) {
        if (!(*guard->counts)[i]) continue;
        PyObject *times = PyLong_FromUnsignedLongLong((*guard->counts)[i]);
        if (!times || PyDict_SetItemString(told, (*guard->reasons)[i].c_str(), times)) Py_CLEAR(told);
        Py_XDECREF(times);
    }
    return told;
}

PyObject *guard_set_ours(PyObject *self, PyObject *said) {
    const int truth = PyObject_IsTrue(said);
    if (truth < 0) return nullptr;
    ((Guard *)self)->ours = truth;
    Py_RETURN_NONE;
}

PyMethodDef guard_methods[] = {
    {"refuses", (PyCFunction)(void (*)(void))guard_refuses, METH_FASTCALL | METH_KEYWORDS, nullptr},
    {"counts", guard_counts, METH_NOARGS, nullptr},
    {"set_ours", guard_set_ours, METH_O, nullptr},
    {nullptr, nullptr, 0, nullptr},
};

PyTypeObject guard_type = {PyVarObject_HEAD_INIT(nullptr, 0) "warpsmith_guard.Guard"};

// A function that chooses, call by call. Chooser(guard, ours, original, fixed): fixed are texts by their places, and where
// another stands there the call is another operator's.
struct Chooser {
    PyObject_HEAD
    vectorcallfunc call;
    Guard *guard;
    PyObject *ours, *original, *fixed;
};

PyObject *chooser_call(PyObject *self, PyObject *const *given, size_t flags, PyObject *names) {
    auto *chooser = (Chooser *)self;
    Guard *guard = chooser->guard;
    int reason = ARGUMENTS;
    if ((size_t)PyVectorcall_NARGS(flags) == guard->parameters->size() && !names) {
        for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(chooser->fixed); ++i) {
            PyObject *pair = PyTuple_GET_ITEM(chooser->fixed, i);
            PyObject *here = given[PyLong_AsSsize_t(PyTuple_GET_ITEM(pair, 0))], *said = PyTuple_GET_ITEM(pair, 1);
            if (here != said && !(PyUnicode_Check(here) && PyUnicode_Compare(here, said) == 0))
                return PyObject_Vectorcall(chooser->original, given, flags, names);
        }
        reason = verdict(guard, given);
        if (reason < 0) return nullptr;
    }
    ++(*guard->counts)[reason];
    return PyObject_Vectorcall(reason == HIT ? chooser->ours : chooser->original, given, flags, names);
}

PyObject *chooser_new(PyTypeObject *type, PyObject *args, PyObject *) {
    PyObject *guard, *ours, *original, *fixed;
    if (!PyArg_ParseTuple(args, "O!OOO!", &guard_type, &guard, &ours, &original, &PyTuple_Type, &fixed)) return nullptr;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(fixed); ++i) {
        Py_ssize_t place;
        PyObject *text;
        if (!PyArg_ParseTuple(PyTuple_GET_ITEM(fixed, i), "nU", &place, &text)) return nullptr;
        if (place < 0 || (size_t)place >= ((Guard *)guard)->parameters->size()) {
            PyErr_SetString(PyExc_ValueError, "a fixed text has no such place");
            return nullptr;
        }
    }
    auto *chooser = (Chooser *)type->tp_alloc(type, 0);
    if (!chooser) return nullptr;
    chooser->call = chooser_call;
    chooser->guard = (Guard *)Py_NewRef(guard);
    chooser->ours = Py_NewRef(ours);
    chooser->original = Py_NewRef(original);
    chooser->fixed = Py_NewRef(fixed);
    return (PyObject *)chooser;
}

void chooser_free(PyObject *self) {
    auto *chooser = (Chooser *)self;
    Py_XDECREF((PyObject *)chooser->guard);
    Py_XDECREF(chooser->ours);
    Py_XDECREF(chooser->original);
    Py_XDECREF(chooser->fixed);
    Py_TYPE(self)->tp_free(self);
}

PyTypeObject chooser_type = {PyVarObject_HEAD_INIT(nullptr, 0) "warpsmith_guard.Chooser"};

// Around a function of another library: Hook(entries, absent), each entry (guard, passed, find, key). Called with the
// original first. Where a guard admits the call, what find() gives is called with the arguments that passed names; find
// is asked once. A key that is in the set absent says that the kernel is not in place.
struct Hook {
    PyObject_HEAD
    vectorcallfunc call;
    PyObject *entries, *absent;
    std::vector<PyObject *> *found;
};

PyObject *served(Hook *hook, Py_ssize_t entry, const std::vector<PyObject *> &arguments) {
    PyObject *parts = PyTuple_GET_ITEM(hook->entries, entry), *passed = PyTuple_GET_ITEM(parts, 1);
    PyObject *&function = (*hook->found)[entry];
    if (!function && !(function = PyObject_CallNoArgs(PyTuple_GET_ITEM(parts, 2)))) return nullptr;
    std::vector<PyObject *> handed;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(passed); ++i) {
        PyObject *argument = arguments[PyLong_AsSsize_t(PyTuple_GET_ITEM(passed, i))];
        if (argument) handed.push_back(argument);
    }
    return PyObject_Vectorcall(function, handed.data(), handed.size(), nullptr);
}

PyObject *hook_call(PyObject *self, PyObject *const *given, size_t flags, PyObject *names) {
    auto *hook = (Hook *)self;
    const Py_ssize_t count = PyVectorcall_NARGS(flags);
    if (count < 1) {
        PyErr_SetString(PyExc_TypeError, "the original comes first");
        return nullptr;
    }
    Guard *refusing = nullptr;
    int why = HIT;
    std::vector<PyObject *> arguments;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(hook->entries); ++i) {
        PyObject *parts = PyTuple_GET_ITEM(hook->entries, i);
        auto *guard = (Guard *)PyTuple_GET_ITEM(parts, 0);
        int reason = placed(guard, given + 1, count - 1, names, arguments) ? verdict(guard, arguments.data()) : ARGUMENTS;
        if (reason < 0) return nullptr;
        if (reason == HIT && PySet_GET_SIZE(hook->absent)) {
            const int absent = PySet_Contains(hook->absent, PyTuple_GET_ITEM(parts, 3));
            if (absent < 0) return nullptr;
            if (absent) reason = NOT_IN_PLACE;
        }
        if (reason == HIT) {
            ++(*guard->counts)[HIT];
            return served(hook, i, arguments);
        }
        // Of kernels of several types, the one of the call's type says why.
        if (!refusing || (*refusing->reasons)[why] == "dtype") refusing = guard, why = reason;
    }
    if (refusing) ++(*refusing->counts)[why];
    return PyObject_Vectorcall(given[0], given + 1, (count - 1) | PY_VECTORCALL_ARGUMENTS_OFFSET, names);
}

PyObject *hook_new(PyTypeObject *type, PyObject *args, PyObject *) {
    PyObject *entries, *absent;
    if (!PyArg_ParseTuple(args, "O!O!", &PyTuple_Type, &entries, &PySet_Type, &absent)) return nullptr;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(entries); ++i) {
        PyObject *guard, *passed, *find, *key;
        if (!PyArg_ParseTuple(PyTuple_GET_ITEM(entries, i), "O!O!OO", &guard_type, &guard, &PyTuple_Type, &passed, &find, &key))
            return nullptr;
        for (Py_ssize_t j = 0; j < PyTuple_GET_SIZE(passed); ++j) {
            const Py_ssize_t place = PyLong_AsSsize_t(PyTuple_GET_ITEM(passed, j));
            if (place < 0 || (size_t)place >= ((Guard *)guard)->parameters->size()) {
                if (!PyErr_Occurred()) PyErr_SetString(PyExc_ValueError, "what is passed on has no such place");
                return nullptr;
            }
        }
    }
    auto *hook = (Hook *)type->tp_alloc(type, 0);
    if (!hook) return nullptr;
    hook->call = hook_call;
    hook->entries = Py_NewRef(entries);
    hook->absent = Py_NewRef(absent);
    hook->found = new std::vector<PyObject *>(PyTuple_GET_SIZE(entries));
    return (PyObject *)hook;
}

void hook_free(PyObject *self) {
    auto *hook = (Hook *)self;
    for (PyObject *function : *hook->found) Py_XDECREF(function);
    delete hook->found;
    Py_XDECREF(hook->entries);
    Py_XDECREF(hook->absent);
    Py_TYPE(self)->tp_free(self);
}

PyTypeObject hook_type = {PyVarObject_HEAD_INIT(nullptr, 0) "warpsmith_guard.Hook"};

PyModuleDef definition = {PyModuleDef_HEAD_INIT, "warpsmith_guard", nullptr, -1, nullptr};

bool ready(PyTypeObject &type, size_t size, newfunc make, destructor gone, Py_ssize_t offset) {
    type.tp_basicsize = size;
    type.tp_flags = Py_TPFLAGS_DEFAULT;
    type.tp_new = make;
    type.tp_dealloc = gone;
    if (offset) {
        type.tp_flags |= Py_TPFLAGS_HAVE_VECTORCALL;
        type.tp_vectorcall_offset = offset;
        type.tp_call = PyVectorcall_Call;
    }
    return PyType_Ready(&type) == 0;
}

}  // namespace

PyMODINIT_FUNC PyInit_warpsmith_guard() {
    guard_type.tp_methods = guard_methods;
    if (!ready(guard_type, sizeof(Guard), guard_new, guard_free, 0) ||
        !ready(chooser_type, sizeof(Chooser), chooser_new, chooser_free, offsetof(Chooser, call)) ||
        !ready(hook_type, sizeof(Hook), hook_new, hook_free, offsetof(Hook, call)))
        return nullptr;
    PyObject *module = PyModule_Create(&definition);
    const std::pair<const char *, PyTypeObject *> types[] = {
        {"Guard", &guard_type}, {"Chooser", &chooser_type}, {"Hook", &hook_type}};
    for (const auto &[name, type] : types)
        if (module && PyModule_AddObject(module, name, Py_NewRef((PyObject *)type))) Py_CLEAR(module);
    return module;
}
