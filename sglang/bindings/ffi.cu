// What the file before this needs of tvm-ffi beside its headers: tensors, the stream to launch on, and a way to fail.
// Nothing of Python or of libtvm_ffi is linked.
#include <cuda_runtime.h>
#include <tvm/ffi/c_api.h>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/extra/c_env_api.h>

#include <cstdio>
#include <cstdlib>

namespace sglang {}
using namespace sglang;

namespace warpsmith {

// The stream of the call under way.
static thread_local cudaStream_t stream = nullptr;

// A contiguous array in the GPU's memory.
template <int N>
struct Array {
    int64_t shape[N], strides[N];
    DLTensor tensor;

    Array(const void *data, DLDataType type, const int64_t (&sizes)[N]) {
        int device = 0;
        cudaGetDevice(&device);
        int64_t stride = 1;
        for (int i = N - 1; i >= 0; --i) {
            shape[i] = sizes[i];
            strides[i] = stride;
            stride *= sizes[i];
        }
        tensor = {const_cast<void *>(data), {kDLCUDA, device}, N, type, shape, strides, 0};
    }
    Array(const Array &) = delete;
    operator tvm::ffi::TensorView() const { return tvm::ffi::TensorView(&tensor); }
};

[[noreturn]] static void stop(const char *what) {
    std::fprintf(stderr, "the operator called %s, which this binding does not offer\n", what);
    std::abort();
}

}  // namespace warpsmith

extern "C" {
TVMFFIStreamHandle TVMFFIEnvGetStream(int32_t, int32_t) { return warpsmith::stream; }
const TVMFFIByteArray *TVMFFIBacktrace(const char *, int, const char *, int) {
    static const TVMFFIByteArray none = {"", 0};
    return &none;
}
int TVMFFIDataTypeToString(const DLDataType *, TVMFFIAny *) { warpsmith::stop("TVMFFIDataTypeToString"); }
void TVMFFIErrorMoveFromRaised(TVMFFIObjectHandle *) { warpsmith::stop("TVMFFIErrorMoveFromRaised"); }
}

