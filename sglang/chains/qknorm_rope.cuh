template <typename T>
struct Chain {
    static void run(tvm::ffi::TensorView q, tvm::ffi::TensorView k, tvm::ffi::TensorView q_weight,
                    tvm::ffi::TensorView k_weight, tvm::ffi::TensorView cos_sin, tvm::ffi::TensorView positions, float eps) {
        part_1::QKNormKernel<128, true, T>::run(q, k, q_weight, k_weight, eps);
        part_2::FusedRopeKernel<true, 128, true, T, T>::run(q, k, cos_sin, positions);
    }
};
