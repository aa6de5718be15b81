// A stand-in of ours for SGLang's file of this name: it offers what the binding uses.
#include <cuda_fp8.h>
#include <sgl_kernel/half.cuh>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/extra/c_env_api.h>

namespace sglang {

template <typename T>
__global__ void by_row(__nv_fp8_e4m3 *out, float *scales, const T *in, int64_t hidden) {
    const int64_t from = int64_t(blockIdx.x) * hidden;
    float most = 0;
    for (int64_t i = 0; i < hidden; ++i) most = fmaxf(most, fabsf(float(in[from + i])));
    const float scale = most / 448.0f, factor = 1.0f / scale;
    scales[blockIdx.x] = scale;
    for (int64_t i = 0; i < hidden; ++i)
        out[from + i] = __nv_fp8_e4m3(fmaxf(fminf(float(in[from + i]) * factor, 448.0f), -448.0f));
}

template <typename T>
void per_token_quant_fp8(tvm::ffi::TensorView in, tvm::ffi::TensorView out, tvm::ffi::TensorView scales) {
    auto stream = static_cast<cudaStream_t>(TVMFFIEnvGetStream(kDLCUDA, 0));
    by_row<T><<<in.size(0), 1, 0, stream>>>(static_cast<__nv_fp8_e4m3 *>(out.data_ptr()),
                                            static_cast<float *>(scales.data_ptr()),
                                            static_cast<const T *>(in.data_ptr()), in.size(1));
}

}  // namespace sglang
