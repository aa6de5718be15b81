// A stand-in of ours for SGLang's file of this name: it offers what the binding uses.
#include <sgl_kernel/half.cuh>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/extra/c_env_api.h>

#include "sizes.h"

namespace {

template <typename T>
__global__ void each(T *x, T *residual, const T *weight, int64_t rows, int64_t hidden, float eps) {
    int64_t row = int64_t(blockIdx.x) * kThreads + threadIdx.x;
    if (row >= rows) return;
    x += row * hidden, residual += row * hidden;
    float squares = 0;
    for (int64_t i = 0; i < hidden; ++i) {
        const float sum = float(x[i]) + float(residual[i]);
        squares += sum * sum;
        residual[i] = T(sum);
    }
    for (int64_t i = 0; i < hidden; ++i) x[i] = T(float(residual[i]) * float(weight[i]) * rsqrtf(eps + squares / hidden));
}

template <bool kCastXBeforeOutMul, typename T>
struct FusedAddRMSNormKernel {
    static void run(tvm::ffi::TensorView x, tvm::ffi::TensorView residual, tvm::ffi::TensorView weight, float eps) {
        auto stream = static_cast<cudaStream_t>(TVMFFIEnvGetStream(kDLCUDA, 0));
        int64_t rows = x.size(0), hidden = x.size(1);
        each<T><<<(rows + kThreads - 1) / kThreads, kThreads, 0, stream>>>(
            static_cast<T *>(x.data_ptr()), static_cast<T *>(residual.data_ptr()), static_cast<const T *>(weight.data_ptr()),
            rows, hidden, eps);
    }
};

}  // namespace
