template <typename T>
static void quantized(tvm::ffi::TensorView middle, tvm::ffi::TensorView output_q, tvm::ffi::TensorView output_s) {
    part_2::per_token_quant_fp8<T>(middle, output_q, output_s);
}
