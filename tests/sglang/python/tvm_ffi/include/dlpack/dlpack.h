#pragma once
#include <cstdint>
enum DLDeviceType { kDLCPU = 1, kDLCUDA = 2 };
enum DLDataTypeCode { kDLInt = 0, kDLFloat = 2, kDLBfloat = 4, kDLFloat8_e4m3fn = 10 };
struct DLDevice { DLDeviceType device_type; int32_t device_id; };
struct DLDataType { uint8_t code, bits; uint16_t lanes; };
struct DLTensor { void *data; DLDevice device; int32_t ndim; DLDataType dtype; int64_t *shape, *strides; uint64_t byte_offset; };
