def module(dtype):
    return load_jit(
        "gates",
        *make_cpp_args(dtype, True),
        cuda_files=["elementwise/activation.cuh"],
        cuda_wrappers=[("run_activation", "ActivationKernel<...>::run_activation")],
    )


def other():
    return load_jit("other", cuda_files=["elementwise/other.cuh"])


def with_cutlass():
    return load_jit("gemm", cuda_files=["gemm/gemm.cuh"], extra_dependencies=["cutlass"])
