// out = gelu(a * transpose(b) + bias) in three kernels, one for each operator: the product writes its sums, the bias is added to
// them in place, and GeLU is taken in place. The product is the same wgmma as in the fused kernel.
#include <cuda.h>
#include <cuda_bf16.h>
#include <stdint.h>

namespace {

constexpr int side = 64;                    // rows of a tile; 64 bf16 are the 128 bytes of a swizzled row
constexpr uint32_t tile_bytes = side * 128;

__device__ uint32_t shared(const void *p) { return (uint32_t)__cvta_generic_to_shared(p); }

__device__ void init(uint64_t *barrier, uint32_t arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared(barrier)), "r"(arrivals) : "memory");
}

// One arrival, and so many bytes to come in this phase.
__device__ void expect(uint64_t *barrier, uint32_t bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared(barrier)), "r"(bytes) : "memory");
}

// Until the phase of this parity is over.
__device__ void wait(uint64_t *barrier, uint32_t parity) {
    uint32_t over;
    do {
        asm volatile("{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}"
                     : "=r"(over) : "r"(shared(barrier)), "r"(parity) : "memory");
    } while (!over);
}

__device__ void load(void *tile, const CUtensorMap *map, int column, int row, uint64_t *barrier) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::
                     "r"(shared(tile)), "l"(map), "r"(column), "r"(row), "r"(shared(barrier)) : "memory");
}

// A tile whose rows are 128 bytes long and lie in the 128-byte swizzle (mode 1 in bits 62 and 63); eight rows, 1024 bytes,
// lie from one group of rows to the next (bits 32 to 45, in units of 16 bytes). The leading offset is not read in this mode.
__device__ uint64_t descriptor(const void *tile) {
    return (uint64_t)((shared(tile) & 0x3ffff) >> 4) | 1ull << 16 | (uint64_t)(1024 >> 4) << 32 | 1ull << 62;
}

#define R4(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define R16(i) R4(i), R4(i + 4), R4(i + 8), R4(i + 12)

__device__ void multiply(float (&d)[32], uint64_t a, uint64_t b) {
    asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "
                 "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, "
                 "%23, %24, %25, %26, %27, %28, %29, %30, %31}, %32, %33, 1, 1, 1, 0, 0;"
                 : R16(0), R16(16) : "l"(a), "l"(b));
}

__global__ void __launch_bounds__(128) product(float *out, const __grid_constant__ CUtensorMap a_map,
                                               const __grid_constant__ CUtensorMap b_map, int m, int n, int k) {
    __shared__ alignas(1024) unsigned char a[tile_bytes], b[tile_bytes];
    __shared__ uint64_t full;
    const int row = blockIdx.y * side, column = blockIdx.x * side;
    if (threadIdx.x == 0) {
        init(&full, 1);
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();
    float d[32] = {};
    uint32_t parity = 0;
    for (int first = 0; first < k; first += side, parity ^= 1) {
        if (threadIdx.x == 0) {
            expect(&full, 2 * tile_bytes);
            load(a, &a_map, first, row, &full);
            load(b, &b_map, first, column, &full);
        }
        wait(&full, parity);
        asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
        for (int i = 0; i < 4; ++i) multiply(d, descriptor(a + 32 * i), descriptor(b + 32 * i));  // 16 bf16 are 32 bytes
        asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
        asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
        __syncthreads();  // all four warps are done with the tiles before the next copy overwrites them
    }
    // A warp holds 16 rows; a thread two of them, eight apart, and in each two neighbours of every eight columns.
    const int lane = threadIdx.x % 32, r = row + threadIdx.x / 32 * 16 + lane / 4;
#pragma unroll
    for (int j = 0; j < 8; ++j) {
        const int at = column + 8 * j + lane % 4 * 2;
#pragma unroll
        for (int half = 0; half < 2; ++half)
            if (at < n && r + 8 * half < m)
                *reinterpret_cast<float2 *>(out + (int64_t)(r + 8 * half) * n + at) =
                    make_float2(d[4 * j + 2 * half], d[4 * j + 2 * half + 1]);
    }
}

// Four numbers a thread; n is a multiple of 8, so they belong to one row.
__global__ void add_bias(float4 *out, const float *bias, int64_t quarters, int64_t n) {
    const int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= quarters) return;
    const float4 add = *reinterpret_cast<const float4 *>(bias + i * 4 % n), x = out[i];
    out[i] = make_float4(x.x + add.x, x.y + add.y, x.z + add.z, x.w + add.w);
}

__device__ float gelu(float x) { return 0.5f * x * (1.0f + erff(x * 0.70710678f)); }

__global__ void take_gelu(float4 *out, int64_t quarters) {
    const int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= quarters) return;
    const float4 x = out[i];
    out[i] = make_float4(gelu(x.x), gelu(x.y), gelu(x.z), gelu(x.w));
}

// A matrix of bf16, row by row, in boxes of `side` rows of 128 bytes; what lies outside comes as zeros.
bool describe(CUtensorMap *map, const void *matrix, int64_t rows, int64_t columns) {
    void *found = nullptr;
    cudaDriverEntryPointQueryResult status;
    cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found, 12000, cudaEnableDefault, &status);
    if (!found) return false;
    const cuuint64_t sizes[] = {(cuuint64_t)columns, (cuuint64_t)rows}, stride[] = {(cuuint64_t)columns * 2};
    const cuuint32_t box[] = {64, side}, step[] = {1, 1};
    return reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(found)(
               map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, const_cast<void *>(matrix), sizes, stride, box, step,
               CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
               CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

}  // namespace

extern "C" void linear_gelu(float *out, const __nv_bfloat16 *a, const __nv_bfloat16 *b, const float *bias, int64_t m, int64_t n,
                            int64_t k, cudaStream_t stream) {
    CUtensorMap a_map, b_map;
    if (!describe(&a_map, a, m, k) || !describe(&b_map, b, n, k)) return;
    const dim3 grid((unsigned)((n + side - 1) / side), (unsigned)((m + side - 1) / side));
    product<<<grid, 128, 0, stream>>>(out, a_map, b_map, (int)m, (int)n, (int)k);
    const int64_t quarters = m * n / 4;
    const unsigned blocks = (unsigned)((quarters + 255) / 256);
    add_bias<<<blocks, 256, 0, stream>>>(reinterpret_cast<float4 *>(out), bias, quarters, n);
    take_gelu<<<blocks, 256, 0, stream>>>(reinterpret_cast<float4 *>(out), quarters);
}
