// A stand-in of ours for SGLang's file of this name: it offers what the binding uses. Some names are those of another file.
#include <sgl_kernel/half.cuh>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/extra/c_env_api.h>

#include "sizes.h"

namespace {

constexpr float kRow = 2;

template <typename T>
__global__ void each(T *x, const float *table, const int64_t *places, int64_t rows, int64_t heads, int64_t dim) {
    int64_t row = int64_t(blockIdx.x) * kThreads + threadIdx.x;
    if (row >= rows) return;
    const float *c = table + places[row / heads] * dim, *s = c + dim / 2;
    for (int64_t i = 0; i < dim / 2; ++i) {
        float a = x[row * dim + i], b = x[row * dim + dim / 2 + i];
        x[row * dim + i] = T(a * c[i] - b * s[i]);
        x[row * dim + dim / 2 + i] = T(b * c[i] + a * s[i]);
    }
}

template <bool kNeox, int64_t kDim, bool kUsePDL, typename T, typename U>
struct FusedRopeKernel {
    static void run(tvm::ffi::TensorView q, tvm::ffi::TensorView k, tvm::ffi::TensorView cos_sin,
                    tvm::ffi::TensorView positions) {
        auto stream = static_cast<cudaStream_t>(TVMFFIEnvGetStream(kDLCUDA, 0));
        auto go = [&](tvm::ffi::TensorView x) {
            int64_t rows = x.size(0) * x.size(1);
            each<T><<<(rows + kThreads - 1) / kThreads, kThreads, 0, stream>>>(
                static_cast<T *>(x.data_ptr()), static_cast<const float *>(cos_sin.data_ptr()),
                static_cast<const int64_t *>(positions.data_ptr()), rows, x.size(1), kDim);
        };
        go(q);
        go(k);
    }
};

}  // namespace
