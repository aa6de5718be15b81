// The same by cuBLAS{% if half %}, on tensor cores with sums in single precision{% else %} in single precision, without TF32{% endif %}. It counts by column, where the rows of a product
// are the columns of the same product with its factors swapped.
#include <cublas_v2.h>

// What cuBLAS asks for on Hopper. It is ours, so that no call allocates.
static constexpr size_t WORKSPACE = 32 << 20;

// A handle with its workspace, made at the first call; a status where that fails.
static int opened(cublasHandle_t *handle, cudaStream_t stream) {
    static cublasHandle_t own = nullptr;
    static void *workspace = nullptr;
    if (!workspace && cudaMalloc(&workspace, WORKSPACE) != cudaSuccess) return CUBLAS_STATUS_ALLOC_FAILED;
    int status = own ? CUBLAS_STATUS_SUCCESS : cublasCreate(&own);
    if (status == CUBLAS_STATUS_SUCCESS) status = cublasSetStream(own, stream);
    if (status == CUBLAS_STATUS_SUCCESS) status = cublasSetWorkspace(own, workspace, WORKSPACE);
    *handle = own;
    return status;
}

extern "C" int gemm({{ element }} *c, const {{ element }} *a, const {{ element }} *b, int64_t m, int64_t n, int64_t k, cudaStream_t stream) {
    cublasHandle_t handle;
    int status = opened(&handle, stream);
    if (status != CUBLAS_STATUS_SUCCESS) return status;
    const float one = 1.0f, zero = 0.0f;
{% if half %}
    status = cublasSetMathMode(handle, CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION);
    if (status != CUBLAS_STATUS_SUCCESS) return status;
    return cublasGemmEx(handle, CUBLAS_OP_N, CUBLAS_OP_N, (int)n, (int)m, (int)k, &one, b, CUDA_R_16F, (int)n, a, CUDA_R_16F, (int)k,
                        &zero, c, CUDA_R_16F, (int)n, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT);
{% else %}
    // The default of the library: neither TF32 nor single precision made of several bf16.
    status = cublasSetMathMode(handle, CUBLAS_DEFAULT_MATH);
    if (status != CUBLAS_STATUS_SUCCESS) return status;
    return cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_N, (int)n, (int)m, (int)k, &one, b, (int)n, a, (int)k, &zero, c, (int)n);
{% endif %}
}
