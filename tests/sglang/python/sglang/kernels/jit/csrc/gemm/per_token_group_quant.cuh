// A stand-in of ours for SGLang's file of this name: it offers what the binding uses.
#include <sgl_kernel/half.cuh>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/extra/c_env_api.h>

namespace sglang {

template <typename T, typename Q, int size>
__global__ void by_group(Q *out, float *scales, const T *in) {
    const int64_t from = int64_t(blockIdx.x) * size;
    float most = 1e-10f;
    for (int i = 0; i < size; ++i) most = fmaxf(most, fabsf(float(in[from + i])));
    scales[blockIdx.x] = most / 448.0f;
    for (int i = 0; i < size; ++i) out[from + i] = Q(fminf(float(in[from + i]) * (448.0f / most), 448.0f));
}

template <typename T, typename Q, int size, bool packed, bool by_row, bool aligned, bool activates, bool early>
struct PerTokenGroupQuantFlatKernel {
    static void run(tvm::ffi::TensorView in, tvm::ffi::TensorView out, tvm::ffi::TensorView scales) {
        auto stream = static_cast<cudaStream_t>(TVMFFIEnvGetStream(kDLCUDA, 0));
        by_group<T, Q, size><<<in.size(0) * scales.size(1), 1, 0, stream>>>(
            static_cast<Q *>(out.data_ptr()), static_cast<float *>(scales.data_ptr()), static_cast<const T *>(in.data_ptr()));
    }
};

}  // namespace sglang
