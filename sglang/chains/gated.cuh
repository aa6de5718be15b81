// The array between the two calls, which SGLang has from torch's allocator: kept, and taken anew where more is needed, which may be
// while a graph is captured. Those that were kept before stay: a graph that was captured writes into them.
static void *between(size_t bytes, int device) {
    static void *held[64];
    static size_t room[64];
    if (room[device] < bytes) {
        cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
        cudaThreadExchangeStreamCaptureMode(&mode);
        room[device] = cudaMalloc(&held[device], bytes) == cudaSuccess ? bytes : 0;
        cudaThreadExchangeStreamCaptureMode(&mode);
    }
    return held[device];
}

template <typename T>
static void quantized(tvm::ffi::TensorView middle, tvm::ffi::TensorView output_q, tvm::ffi::TensorView output_s);

// A gated activation, and what `quantized` does with it.
template <typename T>
struct Chain {
    static void run(tvm::ffi::TensorView input, tvm::ffi::TensorView output_q, tvm::ffi::TensorView output_s) {
        int device = 0;
        cudaGetDevice(&device);
        int64_t shape[2] = {output_q.size(0), output_q.size(1)}, strides[2] = {shape[1], 1};
        void *const data = between(size_t(shape[0] * shape[1]) * sizeof(T), device);
        const DLTensor tensor = {data, {kDLCUDA, device}, 2, input.dtype(), shape, strides, 0};
        const tvm::ffi::TensorView middle(&tensor);
        part_1::ActivationKernel<T, true>::run_activation(input, middle, "silu");
        quantized<T>(middle, output_q, output_s);
    }
};
