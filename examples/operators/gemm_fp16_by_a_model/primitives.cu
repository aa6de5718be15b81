#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <stdint.h>

// sums += left * right for 16 x 8 x 16 on the tensor cores, half precision in, single precision out.
static __device__ __forceinline__ void primitive_mma(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};\n"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// 16 bytes from global into shared memory, past the first-level cache, where live is not 0.
static __device__ __forceinline__ void primitive_copy(uint32_t to, const __half *from, int live) {
    asm volatile(
        "{\n"
        "    .reg .pred p;\n"
        "    setp.ne.b32 p, %2, 0;\n"
        "    @p cp.async.cg.shared.global.L2::128B [%0], [%1], 16;\n"
        "}\n" ::"r"(to), "l"(from), "r"(live)
        : "memory");
}

// The same of `bytes` bytes (0 or 16); the rest of the 16 becomes zeros.
static __device__ __forceinline__ void primitive_copy_or_zero(uint32_t to, const __half *from, int bytes, int live) {
    asm volatile(
        "{\n"
        "    .reg .pred p;\n"
        "    setp.ne.b32 p, %3, 0;\n"
        "    @p cp.async.cg.shared.global [%0], [%1], 16, %2;\n"
        "}\n" ::"r"(to), "l"(from), "r"(bytes), "r"(live)
        : "memory");
}

// 8 halves element by element, the first `count` of them from memory (count may be below 0 or above 8), the others zero.
static __device__ __forceinline__ void primitive_gather(__half *to, const __half *from, int count) {
    const unsigned short *const source = reinterpret_cast<const unsigned short *>(from);
    uint32_t words[4];
#pragma unroll
    for (int e = 0; e < 4; ++e) {
        const uint32_t low = 2 * e < count ? (uint32_t)source[2 * e] : 0u;
        const uint32_t high = 2 * e + 1 < count ? (uint32_t)source[2 * e + 1] : 0u;
        words[e] = low | (high << 16);
    }
    *reinterpret_cast<uint4 *>(to) = make_uint4(words[0], words[1], words[2], words[3]);
}

static __device__ __forceinline__ void COMPUTE(float (&sums)[{{WM}} / 16][{{WN}} / 8][4], const uint32_t (&left)[{{WM}} / 16][4], const uint32_t (&right)[{{WN}} / 16][4]) {
    // Column by column, up and down in turns, so that neighbouring instructions share a fragment.
#pragma unroll
    for (int j = 0; j < {{WN}} / 8; ++j) {
#pragma unroll
        for (int s = 0; s < {{WM}} / 16; ++s) {
            const int i = (j & 1) ? {{WM}} / 16 - 1 - s : s;
            primitive_mma(sums[i][j], left[i], right[j / 2][(j & 1) * 2], right[j / 2][(j & 1) * 2 + 1]);
        }
    }
}

static __device__ __forceinline__ void PACK(__half *left, __half *right, const __half *a, const __half *b, int64_t k, int64_t n, int rows, int columns, int depth, int mode, int part, int parts) {
    constexpr int threads = ({{BM}} / {{WM}}) * ({{BN}} / {{WN}}) * 32;
    constexpr int left_chunks = {{BK}} / 8;    // in a row of the left tile
    constexpr int right_chunks = {{BN}} / 8;   // in a row of the right tile
    constexpr int left_step = threads / left_chunks;    // rows between two chunks of a thread
    constexpr int right_step = threads / right_chunks;
    constexpr int left_count = {{BM}} / left_step;      // chunks of a thread
    constexpr int right_count = {{BK}} / right_step;
    static_assert(threads % left_chunks == 0 && threads % right_chunks == 0, "a thread keeps its column");
    static_assert({{BM}} % left_step == 0 && {{BK}} % right_step == 0, "every thread moves the same number of chunks");

    const int thread = (int)threadIdx.x;
    const int left_row = thread / left_chunks, left_chunk = thread % left_chunks;
    const int right_row = thread / right_chunks, right_chunk = thread % right_chunks;

    if (mode == 2) {
        if (depth > 0) {
#pragma unroll 1
            for (int i = part; i < left_count; i += parts) {
                const int r = left_row + i * left_step;
                const int turn = ({{BK}} == 32) ? ((r >> 1) & 3) : (r & 7);
                const int count = r < rows ? depth - left_chunk * 8 : 0;
                primitive_gather(left + r * {{BK}} + ((left_chunk ^ turn) * 8), a + (int64_t)r * k + left_chunk * 8, count);
            }
#pragma unroll 1
            for (int i = part; i < right_count; i += parts) {
                const int r = right_row + i * right_step;
                const int count = r < depth ? columns - right_chunk * 8 : 0;
                primitive_gather(right + r * {{BN}} + ((right_chunk ^ (r & 7)) * 8), b + (int64_t)r * n + right_chunk * 8, count);
            }
        }
        return;
    }

    const int live = depth > 0 ? 1 : 0;
    const uint32_t to_left = (uint32_t)__cvta_generic_to_shared(left);
    const uint32_t to_right = (uint32_t)__cvta_generic_to_shared(right);
#pragma unroll
    for (int i = 0; i < left_count; ++i) {
        if (i % parts == part) {
            const int r = left_row + i * left_step;
            const int turn = ({{BK}} == 32) ? ((r >> 1) & 3) : (r & 7);
            const uint32_t to = to_left + (uint32_t)((r * {{BK}} + ((left_chunk ^ turn) * 8)) * 2);
            if (mode == 0) {
                const uint32_t offset = (uint32_t)r * (uint32_t)k + (uint32_t)(left_chunk * 8);
                primitive_copy(to, a + offset, live);
            } else {
                const bool inside = r < rows && left_chunk * 8 < depth;
                const int64_t offset = inside ? (int64_t)r * k + left_chunk * 8 : 0;
                primitive_copy_or_zero(to, a + offset, inside ? 16 : 0, live);
            }
        }
    }
#pragma unroll
    for (int i = 0; i < right_count; ++i) {
        if (i % parts == part) {
            const int r = right_row + i * right_step;
            const uint32_t to = to_right + (uint32_t)((r * {{BN}} + ((right_chunk ^ (r & 7)) * 8)) * 2);
            if (mode == 0) {
                const uint32_t offset = (uint32_t)r * (uint32_t)n + (uint32_t)(right_chunk * 8);
                primitive_copy(to, b + offset, live);
            } else {
                const bool inside = r < depth && right_chunk * 8 < columns;
                const int64_t offset = inside ? (int64_t)r * n + right_chunk * 8 : 0;
                primitive_copy_or_zero(to, b + offset, inside ? 16 : 0, live);
            }
        }
    }
}
