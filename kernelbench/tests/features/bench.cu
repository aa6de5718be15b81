// What drive.py needs of a GPU: memory, drawn inputs, a comparison, recorded calls and their time. Every function returns an error
// of the runtime's, 0 for none.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <stdint.h>

// Their header is not in every package of the toolkit.
extern "C" cudaError_t cudaProfilerStart(void);
extern "C" cudaError_t cudaProfilerStop(void);

namespace {

enum Dtype { f32, f64, f16, bf16, i32, i64 };
enum Fill { zeros, ones, uniform, normal, integers };

cudaStream_t stream;
cudaGraphExec_t recorded;

__device__ double get(const void *array, int dtype, int64_t i) {
    switch (dtype) {
    case f32: return static_cast<const float *>(array)[i];
    case f64: return static_cast<const double *>(array)[i];
    case f16: return __half2float(static_cast<const __half *>(array)[i]);
    case bf16: return __bfloat162float(static_cast<const __nv_bfloat16 *>(array)[i]);
    case i32: return static_cast<const int32_t *>(array)[i];
    default: return (double)static_cast<const int64_t *>(array)[i];
    }
}

__device__ void set(void *array, int dtype, int64_t i, double value) {
    switch (dtype) {
    case f32: static_cast<float *>(array)[i] = (float)value; break;
    case f64: static_cast<double *>(array)[i] = value; break;
    case f16: static_cast<__half *>(array)[i] = __float2half_rn((float)value); break;
    case bf16: static_cast<__nv_bfloat16 *>(array)[i] = __float2bfloat16_rn((float)value); break;
    case i32: static_cast<int32_t *>(array)[i] = (int32_t)floor(value); break;
    default: static_cast<int64_t *>(array)[i] = (int64_t)floor(value);
    }
}

// A number from 0 to below 1 that the place and the seed decide.
__device__ double random(uint64_t seed, uint64_t i) {
    uint64_t z = seed * 0x9e3779b97f4a7c15ull + i * 0xd1342543de82ef95ull + 0x632be59bd9b4e019ull;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ z >> 27) * 0x94d049bb133111ebull;
    return (double)((z ^ z >> 31) >> 11) * 0x1p-53;
}

__global__ void draw(void *array, int dtype, int64_t count, int fill, double a, double b, uint64_t seed) {
    const int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count) return;
    const double u = random(seed, 2 * i), v = random(seed, 2 * i + 1);
    double value = 0;
    if (fill == ones) value = 1;
    if (fill == uniform) value = a + (b - a) * u;
    if (fill == normal) value = a + b * sqrt(-2 * log(1 - u)) * cospi(2 * v);
    if (fill == integers) value = a + floor(u * (b - a + 1));
    set(array, dtype, i, value);
}

struct Found {
    unsigned long long bad;
    float largest, reference;  // of the differences, and of what was expected
};

__device__ Found found;

__global__ void differ(const void *expected, const void *got, int dtype, int64_t count, double atol, double rtol) {
    const int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count) return;
    const double e = get(expected, dtype, i), g = get(got, dtype, i), apart = fabs(g - e);
    if (!(apart <= atol + rtol * fabs(e))) atomicAdd(&found.bad, 1ull);
    atomicMax(reinterpret_cast<int *>(&found.largest), __float_as_int(isfinite(apart) ? (float)apart : INFINITY));
    atomicMax(reinterpret_cast<int *>(&found.reference), __float_as_int((float)fabs(e)));
}

__global__ void between() {}

}  // namespace

extern "C" {

int bench_open(void **made) {
    const cudaError_t error = cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    *made = stream;
    return error;
}

int bench_allocate(void **address, int64_t bytes) { return cudaMalloc(address, bytes ? bytes : 1); }

int bench_release(void *address) { return cudaFree(address); }

int bench_poison(void *address, int64_t bytes) { return cudaMemsetAsync(address, 0xff, bytes, stream); }

int bench_draw(void *array, int dtype, int64_t count, int fill, double a, double b, uint64_t seed) {
    draw<<<(unsigned)((count + 255) / 256), 256, 0, stream>>>(array, dtype, count, fill, a, b, seed);
    return cudaGetLastError();
}

int bench_wait() {
    const cudaError_t pending = cudaStreamSynchronize(stream);
    return pending ? pending : cudaGetLastError();
}

int bench_compare(const void *expected, const void *got, int dtype, int64_t count, double atol, double rtol, double *result) {
    Found none = {};
    cudaMemcpyToSymbolAsync(found, &none, sizeof none, 0, cudaMemcpyHostToDevice, stream);
    differ<<<(unsigned)((count + 255) / 256), 256, 0, stream>>>(expected, got, dtype, count, atol, rtol);
    cudaMemcpyFromSymbolAsync(&none, found, sizeof none, 0, cudaMemcpyDeviceToHost, stream);
    const int error = bench_wait();
    result[0] = (double)none.bad, result[1] = none.largest, result[2] = none.reference;
    return error;
}

int bench_record() { return cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed); }

int bench_recorded() {
    cudaGraph_t graph;
    if (const cudaError_t error = cudaStreamEndCapture(stream, &graph)) return error;
    if (recorded) cudaGraphExecDestroy(recorded);
    const cudaError_t error = cudaGraphInstantiate(&recorded, graph, 0);
    cudaGraphDestroy(graph);
    return error;
}

// Milliseconds that one replay takes.
int bench_replay(float *milliseconds) {
    cudaEvent_t start, stop;
    cudaEventCreate(&start), cudaEventCreate(&stop);
    cudaEventRecord(start, stream);
    cudaGraphLaunch(recorded, stream);
    cudaEventRecord(stop, stream);
    const int error = bench_wait();
    cudaEventElapsedTime(milliseconds, start, stop);
    cudaEventDestroy(start), cudaEventDestroy(stop);
    return error;
}

int bench_profile(int on) { return on ? cudaProfilerStart() : cudaProfilerStop(); }

// A launch that stands between two calls in a profile.
int bench_mark() {
    between<<<1, 1, 0, stream>>>();
    return cudaGetLastError();
}
}
