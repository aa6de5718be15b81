#pragma once
#include <tvm/ffi/c_api.h>
using TVMFFIStreamHandle = void *;
extern "C" {
TVMFFIStreamHandle TVMFFIEnvGetStream(int32_t device_type, int32_t device_id);
const TVMFFIByteArray *TVMFFIBacktrace(const char *, int, const char *, int);
int TVMFFIDataTypeToString(const DLDataType *, TVMFFIAny *);
void TVMFFIErrorMoveFromRaised(TVMFFIObjectHandle *);
}
