#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
using bf16_t = __nv_bfloat16;
using fp16_t = __half;
using fp8_e4m3_t = __nv_fp8_e4m3;
