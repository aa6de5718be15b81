// {{ run }} elements of one row a thread, {{ vector }} a load; {{ threads }} threads a block.
#include <stdint.h>

namespace {

constexpr int RUN = {{ run }}, THREADS = {{ threads }}, VECTOR = {{ vector }};

struct alignas(4 * VECTOR) Pack {
    float part[VECTOR];
};

__global__ void __launch_bounds__(THREADS) runs(float *y, const float *x, int rows, int columns) {
    const int64_t at = ((int64_t)blockIdx.x * THREADS + threadIdx.x) * RUN;
    const int row = (int)(at / columns), column = (int)(at % columns);
    if (row >= rows) {
        return;
    }
    for (int i = 0; i < RUN; i += VECTOR) {
        const Pack pack = *reinterpret_cast<const Pack *>(x + at + i);
#pragma unroll
        for (int p = 0; p < VECTOR; ++p) {
            y[(int64_t)(column + i + p) * rows + row] = pack.part[p];
        }
    }
}

}  // namespace

extern "C" void transpose(float *y, const float *x, int32_t rows, int32_t columns, cudaStream_t stream) {
    const int64_t all = (int64_t)rows * columns / RUN;
    runs<<<(unsigned)((all + THREADS - 1) / THREADS), THREADS, 0, stream>>>(y, x, rows, columns);
}
