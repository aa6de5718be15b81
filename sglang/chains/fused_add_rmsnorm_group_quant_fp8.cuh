template <typename T>
struct Chain {
    static void run(tvm::ffi::TensorView input, tvm::ffi::TensorView residual, tvm::ffi::TensorView output_q,
                    tvm::ffi::TensorView output_s, tvm::ffi::TensorView weight, float eps) {
        using namespace sglang;  // its types: global, or in there, by the version
        part_1::FusedAddRMSNormKernel<false, T>::run(input, residual, weight, eps);
        part_2::PerTokenGroupQuantFlatKernel<T, fp8_e4m3_t, 128, false, true, true, false, true>::run(input, output_q, output_s);
    }
};
