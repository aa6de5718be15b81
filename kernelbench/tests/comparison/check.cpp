// Counts what is wrong by the rule that the GPU's verifier is compiled with, on the host, and where CUDA compiles this and a
// GPU is there, on that too.
//
// Each line of the standard input is a case: type, atol and rtol (their bits), the number of elements, and the elements'
// bits, first the expected ones. Each line that is written is a count: of the host, and with --device the GPU's.
#include "tolerance.h"

#include <cstdio>
#include <cstring>
#include <vector>

typedef std::vector<unsigned char> Bytes;

static double number(u64 bits) {
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static bool read(u64 *word) { return scanf("%llx", word) == 1; }

static Bytes read(u64 count, u64 size) {
    Bytes bytes(count * size + 8);
    for (u64 at = 0; at < count; at++) {
        u64 word = 0;
        if (!read(&word)) return Bytes();
        memcpy(&bytes[at * size], &word, size);
    }
    return bytes;
}

#ifdef __CUDACC__
static __global__ void count(const unsigned char *right, const unsigned char *got, u64 elements, u64 dtype, double atol,
                             double rtol, u64 *wrong) {
    const u64 size = size_of(dtype);
    for (u64 at = threadIdx.x; at < elements; at += blockDim.x)
        if (is_wrong(right + at * size, got + at * size, dtype, atol, rtol)) atomicAdd(wrong, 1);
}

static u64 on_the_gpu(const Bytes &right, const Bytes &got, u64 elements, u64 dtype, double atol, double rtol) {
    unsigned char *there[2];
    u64 *wrong, found = ~0ull;
    for (int side = 0; side < 2; side++) {
        const Bytes &bytes = side ? got : right;
        if (cudaMalloc(&there[side], bytes.size())) return found;
        cudaMemcpy(there[side], bytes.data(), bytes.size(), cudaMemcpyHostToDevice);
    }
    if (cudaMalloc(&wrong, sizeof found) || cudaMemset(wrong, 0, sizeof found)) return found;
    count<<<1, 64>>>(there[0], there[1], elements, dtype, atol, rtol, wrong);
    cudaMemcpy(&found, wrong, sizeof found, cudaMemcpyDeviceToHost);
    return cudaFree(there[0]) || cudaFree(there[1]) || cudaFree(wrong) ? ~0ull : found;
}
#endif

int main(int count, char **arguments) {
    const bool device = count > 1 && !strcmp(arguments[1], "--device");
    u64 dtype, atol, rtol, elements;
    while (read(&dtype) && read(&atol) && read(&rtol) && read(&elements)) {
        const u64 size = size_of(dtype);
        const Bytes right = read(elements, size), got = read(elements, size);
        u64 wrong = 0;
        for (u64 at = 0; at < elements; at++)
            wrong += is_wrong(&right[at * size], &got[at * size], dtype, number(atol), number(rtol));
#ifdef __CUDACC__
        if (device) wrong = on_the_gpu(right, got, elements, dtype, number(atol), number(rtol));
#else
        if (device) return 2;
#endif
        printf("%llu\n", wrong);
    }
}
