// The few names of tvm-ffi's that a binding uses.
#pragma once
#include <cstddef>
#include <cstdint>
#include <dlpack/dlpack.h>
struct TVMFFIByteArray { const char *data; size_t size; };
struct TVMFFIAny { int64_t value; };
using TVMFFIObjectHandle = void *;
