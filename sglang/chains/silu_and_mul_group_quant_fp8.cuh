template <typename T>
struct Chain {
    static void run(tvm::ffi::TensorView input, tvm::ffi::TensorView output_q, tvm::ffi::TensorView output_s) {
        int device = 0;
        cudaGetDevice(&device);
        int64_t shape[2] = {output_q.size(0), output_q.size(1)}, strides[2] = {shape[1], 1};
        void *const data = between(size_t(shape[0] * shape[1]) * sizeof(T), device);
        const DLTensor tensor = {data, {kDLCUDA, device}, 2, input.dtype(), shape, strides, 0};
        const tvm::ffi::TensorView middle(&tensor);
        using namespace sglang;  // its types: global, or in there, by the version
        part_1::ActivationKernel<T, true>::run_activation(input, middle, "silu");
        part_2::PerTokenGroupQuantFlatKernel<T, fp8_e4m3_t, 128, false, true, true, false, true>::run(middle, output_q, output_s);
    }
};
