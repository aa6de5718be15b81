#pragma once
#include <tvm/ffi/c_api.h>
namespace tvm::ffi {
struct TensorView {
    DLTensor tensor;
    TensorView(const DLTensor *from) : tensor(*from) {}
    void *data_ptr() const { return tensor.data; }
    DLDataType dtype() const { return tensor.dtype; }
    int64_t size(int at) const { return tensor.shape[at]; }
};
}  // namespace tvm::ffi
