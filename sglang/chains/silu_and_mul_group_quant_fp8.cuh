template <typename T>
static void quantized(tvm::ffi::TensorView middle, tvm::ffi::TensorView output_q, tvm::ffi::TensorView output_s) {
    using namespace sglang;  // its types: global, or in there, by the version
    part_2::PerTokenGroupQuantFlatKernel<T, fp8_e4m3_t, 128, false, true, true, false, true>::run(middle, output_q, output_s);
}
