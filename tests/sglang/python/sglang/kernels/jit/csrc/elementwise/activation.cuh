// A stand-in of ours for SGLang's file of this name: it offers what the binding uses.
#include <sgl_kernel/half.cuh>
#include <string>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/extra/c_env_api.h>

#include "sizes.h"

namespace {

template <typename T>
__global__ void gate(T *out, const T *in, int64_t tokens, int64_t hidden) {
    int64_t at = int64_t(blockIdx.x) * kThreads + threadIdx.x;
    if (at >= tokens * hidden) return;
    float x = in[at / hidden * 2 * hidden + at % hidden], y = in[at / hidden * 2 * hidden + hidden + at % hidden];
    out[at] = T(x / (1 + expf(-x)) * y);
}

template <typename T, bool kUsePDL>
struct ActivationKernel {
    static void run_activation(tvm::ffi::TensorView in, tvm::ffi::TensorView out, std::string) {
        int64_t tokens = out.size(0), hidden = out.size(1);
        auto stream = static_cast<cudaStream_t>(TVMFFIEnvGetStream(kDLCUDA, 0));
        gate<T><<<(tokens * hidden + kThreads - 1) / kThreads, kThreads, 0, stream>>>(
            static_cast<T *>(out.data_ptr()), static_cast<const T *>(in.data_ptr()), tokens, hidden);
    }
};

}  // namespace
