// A product of MXFP4 numbers by MFMA 32x32x64 with block scales. A lane holds a block of 32 along k, so it quantises its own:
// no lane asks another. Compiled for gfx950 and not run.

namespace {

typedef __bf16 two __attribute__((ext_vector_type(2)));
typedef __bf16 eight __attribute__((ext_vector_type(8)));
typedef float sixteen __attribute__((ext_vector_type(16)));
typedef int codes __attribute__((ext_vector_type(8)));
typedef int words __attribute__((ext_vector_type(4)));

// 32 numbers of four bits, in the first four registers of eight, and the exponent of their scale.
struct Block {
    codes number;
    int scale;
};

// Quantises 32 numbers of a row: the largest of them decides the scale, a power of two.
__device__ Block quantised(const __bf16 *from) {
    eight held[4];
    float largest = 0.0f;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        held[i] = reinterpret_cast<const eight *>(from)[i];
#pragma unroll
        for (int j = 0; j < 8; ++j) largest = fmaxf(largest, fabsf((float)held[i][j]));
    }
    // The largest lies in [4, 8) times the scale, and E2M1 ends at 6.
    const int biased = (int)(__builtin_bit_cast(uint32_t, largest) >> 23 & 255) - 2;
    Block block = {};
    block.scale = largest == 0.0f || biased < 1 ? 127 : biased;
    const float scale = __builtin_bit_cast(float, (uint32_t)block.scale << 23);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        uint32_t word = 0;
        // Each writes one of the word's bytes, two numbers, divided by the scale and rounded to the nearest.
        word = __builtin_amdgcn_cvt_scalef32_pk_fp4_bf16(word, two{held[i][0], held[i][1]}, scale, 0);
        word = __builtin_amdgcn_cvt_scalef32_pk_fp4_bf16(word, two{held[i][2], held[i][3]}, scale, 1);
        word = __builtin_amdgcn_cvt_scalef32_pk_fp4_bf16(word, two{held[i][4], held[i][5]}, scale, 2);
        word = __builtin_amdgcn_cvt_scalef32_pk_fp4_bf16(word, two{held[i][6], held[i][7]}, scale, 3);
        block.number[i] = (int)word;
    }
    return block;
}

// Takes 32 numbers of a row as they are.
__device__ Block taken(const int32_t *from, const int32_t *scale) {
    const words held = *reinterpret_cast<const words *>(from);
    return {codes{held[0], held[1], held[2], held[3], 0, 0, 0, 0}, *scale};
}

// A wave keeps 64 x 64 sums. Rows beyond the last read the last one again; nobody stores what comes of them.
__global__ __launch_bounds__(64) void tiles(__bf16 *c, const __bf16 *a, const int32_t *b, const int32_t *b_scale, int64_t m,
                                            int64_t n, int64_t k) {
    const int lane = threadIdx.x;
    const int64_t row0 = (int64_t)blockIdx.y * 64, column0 = (int64_t)blockIdx.x * 64;
    sixteen sum[2][2] = {};
    // Lane l holds row l % 32 and, of 64 columns, the block l / 32.
    for (int64_t step = 0; step < k; step += 64) {
        const int64_t k0 = step + lane / 32 * 32;
        Block left[2], right[2];
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            const int64_t row = min(row0 + i * 32 + lane % 32, m - 1), other = min(column0 + i * 32 + lane % 32, n - 1);
            left[i] = quantised(a + row * k + k0);
            right[i] = taken(b + (other * k + k0) / 8, b_scale + (other * k + k0) / 32);
        }
        // 4 says E2M1, of both factors; byte 0 of each scale counts.
#pragma unroll
        for (int i = 0; i < 2; ++i)
#pragma unroll
            for (int j = 0; j < 2; ++j)
                sum[i][j] = __builtin_amdgcn_mfma_scale_f32_32x32x64_f8f6f4(left[i].number, right[j].number, sum[i][j], 4, 4, 0,
                                                                            left[i].scale, 0, right[j].scale);
    }
    // Number v of a lane is row 8 * (v / 4) + 4 * (lane / 32) + v % 4 of its column lane % 32.
#pragma unroll
    for (int i = 0; i < 2; ++i)
#pragma unroll
        for (int j = 0; j < 2; ++j)
#pragma unroll
            for (int v = 0; v < 16; ++v) {
                const int64_t row = row0 + i * 32 + v / 4 * 8 + lane / 32 * 4 + v % 4;
                const int64_t column = column0 + j * 32 + lane % 32;
                if (row < m && column < n) c[row * n + column] = (__bf16)sum[i][j][v];
            }
}

}  // namespace

extern "C" void quantized_product(__bf16 *c, const __bf16 *a, const int32_t *b, const int32_t *b_scale, int64_t m, int64_t n,
                                  int64_t k, hipStream_t stream) {
    const dim3 grid((unsigned)((n + 63) / 64), (unsigned)((m + 63) / 64));
    tiles<<<grid, 64, 0, stream>>>(c, a, b, b_scale, m, n, k);
}
