// out = matrix * vector: one block a multiprocessor works through tiles of 32 rows and 256 columns, with ordinary loads. Nothing
// is computed while a tile is on its way, and nothing is on its way while it is computed with.
#include <stdint.h>

namespace {

constexpr int height = 32, width = 256, threads = 256;

__device__ float dot(float4 x, float4 y) { return fmaf(x.x, y.x, fmaf(x.y, y.y, fmaf(x.z, y.z, x.w * y.w))); }

__global__ void __launch_bounds__(threads) apply_tiles(float *out, const float *matrix, const float *vector, int rows,
                                                       int columns) {
    __shared__ alignas(16) float tile[height * width];
    const int across = (columns + width - 1) / width, strips = (rows + height - 1) / height;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    for (int strip = blockIdx.x; strip < strips; strip += gridDim.x) {
        float sums[4] = {};  // of rows 4 * warp to 4 * warp + 3
        for (int t = 0; t < across; ++t) {
            for (int i = threadIdx.x; i < height * width; i += threads) {
                const int row = strip * height + i / width, column = t * width + i % width;
                tile[i] = row < rows && column < columns ? matrix[(int64_t)row * columns + column] : 0.0f;
            }
            __syncthreads();
            for (int i = 4 * lane; i < width; i += 128) {
                const int column = t * width + i;
                if (column >= columns) continue;
                const float4 y = *reinterpret_cast<const float4 *>(vector + column);
                for (int r = 0; r < 4; ++r)
                    sums[r] += dot(*reinterpret_cast<const float4 *>(tile + (warp * 4 + r) * width + i), y);
            }
            __syncthreads();
        }
        for (int r = 0; r < 4; ++r) {
            for (int by = 16; by > 0; by /= 2) sums[r] += __shfl_down_sync(~0u, sums[r], by);
            const int row = strip * height + warp * 4 + r;
            if (lane == 0 && row < rows) out[row] = sums[r];
        }
    }
}

}  // namespace

extern "C" void apply(float *out, const float *matrix, const float *vector, int64_t rows, int64_t columns, cudaStream_t stream) {
    int processors = 148;
    cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, 0);
    apply_tiles<<<processors, threads, 0, stream>>>(out, matrix, vector, (int)rows, (int)columns);
}
