// A stand-in of ours for SGLang's file of this name: it offers what the binding uses.
#include <sgl_kernel/half.cuh>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/extra/c_env_api.h>

#include "sizes.h"

namespace {

constexpr int kRow = 1;

template <typename T>
__global__ void each(T *x, const T *weight, int64_t rows, int64_t dim, float eps) {
    int64_t row = int64_t(blockIdx.x) * kThreads + threadIdx.x;
    if (row >= rows) return;
    float sum = 0;
    for (int64_t i = 0; i < dim; ++i) sum += float(x[row * dim + i]) * float(x[row * dim + i]);
    for (int64_t i = 0; i < dim; ++i)
        x[row * dim + i] = T(float(x[row * dim + i]) * rsqrtf(sum / dim + eps) * float(weight[i]));
}

template <int64_t kDim, bool kUsePDL, typename T>
struct QKNormKernel {
    static void run(tvm::ffi::TensorView q, tvm::ffi::TensorView k, tvm::ffi::TensorView q_weight,
                    tvm::ffi::TensorView k_weight, float eps) {
        auto stream = static_cast<cudaStream_t>(TVMFFIEnvGetStream(kDLCUDA, 0));
        auto go = [&](tvm::ffi::TensorView x, tvm::ffi::TensorView weight) {
            int64_t rows = x.size(0) * x.size(1);
            each<T><<<(rows + kThreads - 1) / kThreads, kThreads, 0, stream>>>(
                static_cast<T *>(x.data_ptr()), static_cast<const T *>(weight.data_ptr()), rows, kDim, eps);
        };
        go(q, q_weight);
        go(k, k_weight);
    }
};

}  // namespace
