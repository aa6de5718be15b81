// The same by cuDNN{% if half %}, on tensor cores with sums in single precision{% else %} in single precision, without TF32{% endif %}. When the sizes change, it tries every algorithm that it has
// and keeps the quickest{% if half %} of those that add products up: Winograd's and Fourier's round what they transform{% endif %}. Its functions are declared here with the
// numbers of its version 9: where its library is, its headers may be missing.
#include <cstddef>

struct Tried {
    int algorithm, status;
    float milliseconds;
    size_t workspace;
    int deterministic, math, reserved[3];
};

extern "C" {
int cudnnCreate(void **handle);
int cudnnSetStream(void *handle, cudaStream_t stream);
int cudnnCreateTensorDescriptor(void **tensor);
int cudnnSetTensor4dDescriptor(void *tensor, int layout, int type, int images, int channels, int height, int width);
int cudnnCreateFilterDescriptor(void **filter);
int cudnnSetFilter4dDescriptor(void *filter, int type, int layout, int filters, int channels, int rows, int columns);
int cudnnCreateConvolutionDescriptor(void **convolution);
int cudnnSetConvolution2dDescriptor(void *convolution, int pad_y, int pad_x, int stride_y, int stride_x, int dilation_y, int dilation_x,
                                    int mode, int type_of_sums);
int cudnnSetConvolutionMathType(void *convolution, int math);
int cudnnFindConvolutionForwardAlgorithm(void *handle, void *x_tensor, void *filter, void *convolution, void *y_tensor, int asked,
                                         int *tried, Tried *results);
int cudnnGetConvolutionForwardWorkspaceSize(void *handle, void *x_tensor, void *filter, void *convolution, void *y_tensor, int algorithm,
                                            size_t *bytes);
int cudnnConvolutionForward(void *handle, const void *alpha, void *x_tensor, const void *x, void *filter, const void *f, void *convolution,
                            int algorithm, void *workspace, size_t bytes, const void *beta, void *y_tensor, void *y);
}

// Row by row; a filter is not turned around; sums in single precision.
static constexpr int NCHW = 0, CROSS_CORRELATION = 1, SINGLE = 0;
{% if half %}
static constexpr int TYPE = 2, MATH = 1;  // half precision, tensor cores
{% else %}
static constexpr int TYPE = SINGLE, MATH = 3;  // on CUDA cores: neither TF32 nor any other conversion
{% endif %}
// Twice the number of its algorithms, which may be tried with and without tensor cores.
static constexpr int RESULTS = 16;
// Of each algorithm the quickest trial counts: at the first its kernels are loaded, and others may be at work on the GPU.
static constexpr int TRIALS = 3;

static void *handle, *x_tensor, *y_tensor, *filter, *convolution, *workspace;
static Tried chosen;
static int64_t known[9];

// Whether a result may be kept, and how early: 0 before 1.
static int rank(const Tried &tried) {
{% if half %}
    return tried.status == 0 && tried.algorithm < 4 ? 0 : -1;
{% else %}
    // What was tried in the library's default may have used TF32; it is run without all the same.
    return tried.status ? -1 : tried.math == MATH ? 0 : tried.math == 0 ? 1 : -1;
{% endif %}
}

// Describes the sizes and chooses the quickest algorithm; a status where that fails.
static int choose(const int64_t (&sizes)[9], int high, int wide, cudaStream_t stream) {
    const auto [batch, channels, height, width, filters, rows, columns, stride, pad] = sizes;
    known[0] = 0;  // until all is set, no sizes are known
    int status = handle ? 0 : cudnnCreate(&handle);
    if (!status && !x_tensor) status = cudnnCreateTensorDescriptor(&x_tensor);
    if (!status && !y_tensor) status = cudnnCreateTensorDescriptor(&y_tensor);
    if (!status && !filter) status = cudnnCreateFilterDescriptor(&filter);
    if (!status && !convolution) status = cudnnCreateConvolutionDescriptor(&convolution);
    if (!status) status = cudnnSetStream(handle, stream);
    if (!status) status = cudnnSetTensor4dDescriptor(x_tensor, NCHW, TYPE, (int)batch, (int)channels, (int)height, (int)width);
    if (!status) status = cudnnSetTensor4dDescriptor(y_tensor, NCHW, TYPE, (int)batch, (int)filters, high, wide);
    if (!status) status = cudnnSetFilter4dDescriptor(filter, TYPE, NCHW, (int)filters, (int)channels, (int)rows, (int)columns);
    if (!status)
        status = cudnnSetConvolution2dDescriptor(convolution, (int)pad, (int)pad, (int)stride, (int)stride, 1, 1, CROSS_CORRELATION, SINGLE);
    if (!status) status = cudnnSetConvolutionMathType(convolution, MATH);
    int best = -1;
    for (int trial = 0; trial < TRIALS && !status; ++trial) {
        Tried tried[RESULTS];
        int count = 0;
        status = cudnnFindConvolutionForwardAlgorithm(handle, x_tensor, filter, convolution, y_tensor, RESULTS, &count, tried);
        for (int i = 0; i < count && !status; ++i) {
            const int now = rank(tried[i]);
            if (now < 0 || (best >= 0 && (now > best || (now == best && tried[i].milliseconds >= chosen.milliseconds)))) continue;
            chosen = tried[i], best = now;
        }
    }
    if (status) return status;
    if (best < 0) return (int)cudaErrorNotSupported;
{% if half %}
    status = cudnnSetConvolutionMathType(convolution, chosen.math);
{% endif %}
    if (!status) status = cudnnGetConvolutionForwardWorkspaceSize(handle, x_tensor, filter, convolution, y_tensor, chosen.algorithm, &chosen.workspace);
    cudaFree(workspace);
    workspace = nullptr;
    if (!status && chosen.workspace) status = (int)cudaMalloc(&workspace, chosen.workspace);
    for (int i = 0; i < 9 && !status; ++i) known[i] = sizes[i];
    return status;
}

extern "C" int conv2d({{ element }} *y, const {{ element }} *x, const {{ element }} *f, int64_t batch, int64_t channels, int64_t height,
                      int64_t width, int64_t filters, int64_t rows, int64_t columns, int64_t stride, int64_t pad, cudaStream_t stream) {
    const int64_t sizes[9] = {batch, channels, height, width, filters, rows, columns, stride, pad};
    const int high = (int)((height + 2 * pad - rows) / stride + 1), wide = (int)((width + 2 * pad - columns) / stride + 1);
    bool same = handle != nullptr;
    for (int i = 0; i < 9; ++i) same = same && known[i] == sizes[i];
    int status = same ? cudnnSetStream(handle, stream) : choose(sizes, high, wide, stream);
    if (status) return status;
    const float one = 1.0f, zero = 0.0f;
    return cudnnConvolutionForward(handle, &one, x_tensor, x, filter, f, convolution, chosen.algorithm, workspace, chosen.workspace, &zero,
                                   y_tensor, y);
}
