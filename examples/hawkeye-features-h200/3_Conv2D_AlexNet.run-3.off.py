import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.cpp_extension import load_inline

cuda_source = r'''
#include <cuda.h>
#include <cuda_runtime.h>
#include <cstdint>
#include <torch/types.h>
#include <c10/cuda/CUDAStream.h>
#include <c10/cuda/CUDAException.h>

// Implicit GEMM: rows are output pixels, columns are the 96 filters, and
// k runs over (kh, c, kw) with kw padded from 11 to 12, 396 padded to 400.
// A unit of work is 8 output rows of an image. Its input rows lie in shared memory
// as [h][c][240] from x = -8 on, zeros of the padding included (the copy engine fills them in);
// the fragments of A are read from there, pair by pair, straight into registers.

namespace {

constexpr int BATCH = 256;
constexpr int FILTERS = 96;
constexpr int OHW = 55 * 55;
constexpr int CHUNKS = 7;                       // 6 of 8 output rows, 1 of 7
constexpr int UNITS = BATCH * CHUNKS;
constexpr int TILES = 7;                        // of 64 pixels, in a unit of 440 or 385
constexpr int BOX_W = 240;                      // elements of a row, the first is x = -8:
constexpr int BOX_X = -8;                       // the copy starts on a 16-byte boundary
constexpr int ROW_BYTES = BOX_W * 2;
constexpr int LEFT_BYTES = (-2 - BOX_X) * 2;    // from there to x = -2, where the windows start
constexpr int PATCH_ROWS = 39;
constexpr int PATCH_BYTES = PATCH_ROWS * 3 * ROW_BYTES;   // 56160
constexpr int PATCH_STRIDE = 56192;
constexpr int STEPS = 25;
constexpr int STEP_BYTES = FILTERS * 32;        // 16 k of 96 filters
constexpr int W_BYTES = STEPS * STEP_BYTES;     // 76800
constexpr int STAGE_BYTES = 48 * 128;           // 48 filters x 64 pixels, a warpgroup's
constexpr int OFF_PATCH = W_BYTES;
constexpr int OFF_STAGE = OFF_PATCH + 2 * PATCH_STRIDE;
constexpr int OFF_BIAS = OFF_STAGE + 4 * STAGE_BYTES;
constexpr int OFF_BAR = OFF_BIAS + FILTERS * 4;
constexpr int SMEM_BYTES = OFF_BAR + 64 + 128;
constexpr int BLOCKS = 132;
constexpr int THREADS = 544;                    // 4 warpgroups that compute, 1 warp that loads

__device__ __forceinline__ uint32_t smem_u32(const void* p) {
    return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

__device__ __forceinline__ void mbar_init(uint32_t bar, uint32_t count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" :: "r"(bar), "r"(count) : "memory");
}

__device__ __forceinline__ void mbar_expect_tx(uint32_t bar, uint32_t bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" :: "r"(bar), "r"(bytes) : "memory");
}

__device__ __forceinline__ void mbar_arrive(uint32_t bar) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" :: "r"(bar) : "memory");
}

__device__ __forceinline__ void mbar_wait(uint32_t bar, uint32_t parity) {
    uint32_t ok;
    do {
        asm volatile(
            "{\n"
            ".reg .pred p;\n"
            "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
            "selp.u32 %0, 1, 0, p;\n"
            "}\n" : "=r"(ok) : "r"(bar), "r"(parity) : "memory");
    } while (!ok);
}

__device__ __forceinline__ uint32_t lds32(uint32_t addr) {
    uint32_t v;
    asm volatile("ld.shared.b32 %0, [%1];" : "=r"(v) : "r"(addr) : "memory");
    return v;
}

__device__ __forceinline__ uint32_t pack_bf16(float lo, float hi) {
    uint32_t r;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(hi), "f"(lo));
    return r;
}

#define F8(i) "+f"(d[(i)]), "+f"(d[(i) + 1]), "+f"(d[(i) + 2]), "+f"(d[(i) + 3]), \
              "+f"(d[(i) + 4]), "+f"(d[(i) + 5]), "+f"(d[(i) + 6]), "+f"(d[(i) + 7])

// A from registers, B K-major in shared memory
__device__ __forceinline__ void wgmma_m64n96k16(float (&d)[48], uint32_t a0, uint32_t a1, uint32_t a2,
                                                uint32_t a3, uint64_t db) {
    asm volatile(
        "{\n"
        ".reg .pred p;\n"
        "setp.ne.b32 p, %53, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n96k16.f32.bf16.bf16 "
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
        "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47}, "
        "{%48, %49, %50, %51}, %52, p, 1, 1, 0;\n"
        "}\n"
        : F8(0), F8(8), F8(16), F8(24), F8(32), F8(40)
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "l"(db), "r"(1));
}

// Four pairs of k (one for each lane of a quad) make a group; three groups cover two rows of kw.
// The second of the three runs over the end of its row: lanes 2 and 3 of the quad use
// a base that is moved to the next row. The very last group has no next row: its lanes 2 and 3
// read on in the same row, against weights that are zero.
__device__ __forceinline__ uint32_t load_pair(uint32_t base, uint32_t base2, int group) {
    const int tr = group / 3;
    const int kind = group - 3 * tr;
    if (kind == 0) return lds32(base + 2 * tr * ROW_BYTES);
    if (kind == 2) return lds32(base + (2 * tr + 1) * ROW_BYTES + 8);
    if (group == 2 * STEPS - 1) return lds32(base + 2 * tr * ROW_BYTES + 16);
    return lds32(base2 + 2 * tr * ROW_BYTES + 16);
}

__global__ void __launch_bounds__(THREADS, 1)
alexnet_conv_kernel(const __grid_constant__ CUtensorMap mapX,
                    const uint16_t* __restrict__ weights,
                    const float* __restrict__ bias,
                    uint16_t* __restrict__ out) {
    extern __shared__ uint8_t smem_raw[];
    const uint32_t raw = smem_u32(smem_raw);
    const uint32_t base = (raw + 127u) & ~127u;
    float* sbias = reinterpret_cast<float*>(smem_raw + (base - raw) + OFF_BIAS);
    const uint32_t full0 = base + OFF_BAR;
    const uint32_t empty0 = full0 + 16;
    const uint32_t wbar = full0 + 32;
    const int tid = threadIdx.x;
    const int warp = tid >> 5;
    const int lane = tid & 31;

    if (tid == 0) {
        mbar_init(full0, 1);
        mbar_init(full0 + 8, 1);
        mbar_init(empty0, 16);
        mbar_init(empty0 + 8, 16);
        mbar_init(wbar, 1);
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    }
    if (tid < FILTERS) sbias[tid] = bias[tid];
    __syncthreads();

    if (warp == 16) {
        if (lane == 0) {
            mbar_expect_tx(wbar, W_BYTES);
            // in five pieces of 15360 bytes
            for (int i = 0; i < 5; ++i) {
                asm volatile(
                    "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
                    :: "r"(base + i * (W_BYTES / 5)),
                       "l"(reinterpret_cast<uint64_t>(weights) + (uint64_t)(i * (W_BYTES / 5))),
                       "r"(W_BYTES / 5), "r"(wbar) : "memory");
            }
            int ul = 0;
            for (int u = blockIdx.x; u < UNITS; u += BLOCKS, ++ul) {
                const int b = ul & 1;
                const int n = u / CHUNKS;
                const int ch = u - n * CHUNKS;
                mbar_wait(empty0 + 8 * b, ((ul >> 1) & 1) ^ 1);
                mbar_expect_tx(full0 + 8 * b, PATCH_BYTES);
                asm volatile(
                    "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes"
                    " [%0], [%1, {%3, %4, %5, %6}], [%2];"
                    :: "r"(base + OFF_PATCH + b * PATCH_STRIDE), "l"(reinterpret_cast<uint64_t>(&mapX)),
                       "r"(full0 + 8 * b), "r"(BOX_X), "r"(0), "r"(ch * 32 - 2), "r"(n) : "memory");
            }
        }
        return;
    }

    const int w = warp >> 2;
    const int wq = warp & 3;
    const int g = lane >> 2;
    const int t = lane & 3;
    const uint32_t stage = base + OFF_STAGE + w * STAGE_BYTES;
    // no swizzle: 128-byte core matrices, 1536 bytes to the next along k, 128 along the filters
    const uint64_t desc0 = (uint64_t)((base & 0x3FFFF) >> 4) | ((uint64_t)(1536 >> 4) << 16) |
                           ((uint64_t)(128 >> 4) << 32);

    mbar_wait(wbar, 0);

    int ul = 0;
    for (int u = blockIdx.x; u < UNITS; u += BLOCKS, ++ul) {
        const int b = ul & 1;
        const int n = u / CHUNKS;
        const int ch = u - n * CHUNKS;
        const int valid = (ch == CHUNKS - 1) ? 385 : 440;
        const uint32_t patch = base + OFF_PATCH + b * PATCH_STRIDE;
        mbar_wait(full0 + 8 * b, (ul >> 1) & 1);

        // tiles go round over the warpgroups, on from unit to unit
        for (int tile = (w + ul) & 3; tile < TILES; tile += 4) {
            uint32_t b0, b0n, b1, b1n;
            {
                const int p0 = min(tile * 64 + wq * 16 + g, 439);
                const int p1 = min(tile * 64 + wq * 16 + g + 8, 439);
                const int y0 = p0 / 55, x0 = p0 - y0 * 55;
                const int y1 = p1 / 55, x1 = p1 - y1 * 55;
                const uint32_t cross = (t >= 2) ? (ROW_BYTES - 24) : 0;
                b0 = patch + y0 * (12 * ROW_BYTES) + x0 * 8 + t * 4 + LEFT_BYTES;
                b1 = patch + y1 * (12 * ROW_BYTES) + x1 * 8 + t * 4 + LEFT_BYTES;
                b0n = b0 + cross;
                b1n = b1 + cross;
            }

            float d[48];
            #pragma unroll
            for (int j = 0; j < 12; ++j) {
                const float2 bv = *reinterpret_cast<const float2*>(sbias + j * 8 + t * 2);
                d[4 * j] = bv.x;
                d[4 * j + 1] = bv.y;
                d[4 * j + 2] = bv.x;
                d[4 * j + 3] = bv.y;
            }

            uint32_t a[2][20];
            #pragma unroll
            for (int s = 0; s < 5; ++s) {
                a[0][4 * s] = load_pair(b0, b0n, 2 * s);
                a[0][4 * s + 1] = load_pair(b1, b1n, 2 * s);
                a[0][4 * s + 2] = load_pair(b0, b0n, 2 * s + 1);
                a[0][4 * s + 3] = load_pair(b1, b1n, 2 * s + 1);
            }
            #pragma unroll
            for (int i = 0; i < 48; ++i) asm volatile("" : "+f"(d[i]) :: "memory");

            #pragma unroll
            for (int q = 0; q < 5; ++q) {
                asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
                #pragma unroll
                for (int s = 0; s < 5; ++s) {
                    wgmma_m64n96k16(d, a[q & 1][4 * s], a[q & 1][4 * s + 1], a[q & 1][4 * s + 2],
                                    a[q & 1][4 * s + 3],
                                    desc0 + (uint64_t)((q * 5 + s) * (STEP_BYTES >> 4)));
                }
                asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
                if (q < 4) {
                    // the registers to be filled were last read by the group before this one
                    if (q > 0) asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
                    #pragma unroll
                    for (int s = 0; s < 5; ++s) {
                        const int grp = 2 * ((q + 1) * 5 + s);
                        a[(q + 1) & 1][4 * s] = load_pair(b0, b0n, grp);
                        a[(q + 1) & 1][4 * s + 1] = load_pair(b1, b1n, grp);
                        a[(q + 1) & 1][4 * s + 2] = load_pair(b0, b0n, grp + 1);
                        a[(q + 1) & 1][4 * s + 3] = load_pair(b1, b1n, grp + 1);
                    }
                }
            }
            asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
            #pragma unroll
            for (int i = 0; i < 48; ++i) asm volatile("" : "+f"(d[i]) :: "memory");

            if (tile + 4 >= TILES) {
                __syncwarp();
                if (lane == 0) mbar_arrive(empty0 + 8 * b);
            }

            // through shared memory, transposed, so that a filter's 64 pixels are written as one run
            const int nv = min(valid - tile * 64, 64);
            #pragma unroll
            for (int pass = 0; pass < 2; ++pass) {
                asm volatile("bar.sync %0, 128;" :: "r"(1 + w) : "memory");
                #pragma unroll
                for (int jj = 0; jj < 3; ++jj) {
                    const int i = pass * 24 + jj * 8;
                    const uint32_t r0 = pack_bf16(d[i], d[i + 1]);
                    const uint32_t r1 = pack_bf16(d[i + 2], d[i + 3]);
                    const uint32_t r2 = pack_bf16(d[i + 4], d[i + 5]);
                    const uint32_t r3 = pack_bf16(d[i + 6], d[i + 7]);
                    const int f = jj * 16 + (lane >> 4) * 8 + (lane & 7);
                    const int chunk = wq * 2 + ((lane >> 3) & 1);
                    const uint32_t addr = stage + f * 128 + ((chunk ^ (lane & 7)) << 4);
                    asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};"
                                 :: "r"(addr), "r"(r0), "r"(r1), "r"(r2), "r"(r3) : "memory");
                }
                asm volatile("bar.sync %0, 128;" :: "r"(1 + w) : "memory");
                const int f0 = wq * 12;
                uint16_t* dst = out + (n * FILTERS + pass * 48 + f0) * OHW + ch * 440 + tile * 64;
                #pragma unroll
                for (int i = 0; i < 12; ++i) {
                    const int f = f0 + i;
                    const uint32_t word = lds32(stage + f * 128 + (((lane >> 2) ^ (f & 7)) << 4) + (lane & 3) * 4);
                    uint16_t* row = dst + i * OHW;
                    if ((i & 1) == 0) {
                        // the run starts at an even element
                        if (2 * lane + 1 < nv) {
                            *reinterpret_cast<uint32_t*>(row + 2 * lane) = word;
                        } else if (2 * lane < nv) {
                            row[2 * lane] = (uint16_t)(word & 0xFFFF);
                        }
                    } else {
                        // the run starts at an odd element: pairs are shifted by one
                        const uint32_t next = __shfl_down_sync(0xFFFFFFFFu, word, 1);
                        if (2 * lane + 2 < nv) {
                            *reinterpret_cast<uint32_t*>(row + 2 * lane + 1) = (word >> 16) | (next << 16);
                        } else if (2 * lane + 1 < nv) {
                            row[2 * lane + 1] = (uint16_t)(word >> 16);
                        }
                        if (lane == 0) row[0] = (uint16_t)(word & 0xFFFF);
                    }
                }
            }
        }
    }
}

typedef CUresult (*EncodeFn)(CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*, const cuuint64_t*,
                             const cuuint64_t*, const cuuint32_t*, const cuuint32_t*,
                             CUtensorMapInterleave, CUtensorMapSwizzle, CUtensorMapL2promotion,
                             CUtensorMapFloatOOBfill);

EncodeFn load_encode() {
    void* p = nullptr;
    cudaDriverEntryPointQueryResult status;
    C10_CUDA_CHECK(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &p, 12000,
                                                    cudaEnableDefault, &status));
    TORCH_CHECK(p != nullptr && status == cudaDriverEntryPointSuccess, "cuTensorMapEncodeTiled not found");
    return reinterpret_cast<EncodeFn>(p);
}

}  // namespace

torch::Tensor alexnet_conv(torch::Tensor x, torch::Tensor weights, torch::Tensor bias) {
    static EncodeFn encode = load_encode();
    static bool configured = false;
    if (!configured) {
        C10_CUDA_CHECK(cudaFuncSetAttribute(alexnet_conv_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                            SMEM_BYTES));
        configured = true;
    }
    torch::Tensor out = at::empty({BATCH, FILTERS, 55, 55}, x.options());

    // dimensions in the order w, c, h, n, so that a box lands as [h][c][w]
    CUtensorMap mapX;
    cuuint64_t dims[4] = {224, 3, 224, BATCH};
    cuuint64_t strides[3] = {224 * 224 * 2, 224 * 2, 3 * 224 * 224 * 2};
    cuuint32_t box[4] = {BOX_W, 3, PATCH_ROWS, 1};
    cuuint32_t es[4] = {1, 1, 1, 1};
    CUresult r = encode(&mapX, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 4, x.data_ptr(), dims, strides, box, es,
                        CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_NONE,
                        CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    TORCH_CHECK(r == CUDA_SUCCESS, "cuTensorMapEncodeTiled failed");

    alexnet_conv_kernel<<<BLOCKS, THREADS, SMEM_BYTES, c10::cuda::getCurrentCUDAStream().stream()>>>(
        mapX, reinterpret_cast<const uint16_t*>(weights.data_ptr()),
        reinterpret_cast<const float*>(bias.data_ptr()),
        reinterpret_cast<uint16_t*>(out.data_ptr()));
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}
'''

cpp_source = r'''
torch::Tensor alexnet_conv(torch::Tensor x, torch::Tensor weights, torch::Tensor bias);
'''

conv_module = load_inline(
    name="alexnet_conv_wgmma_rs",
    cpp_sources=cpp_source,
    cuda_sources=cuda_source,
    functions=["alexnet_conv"],
    extra_cuda_cflags=["-O3", "-gencode=arch=compute_90a,code=sm_90a"],
    verbose=False,
)


class ModelNew(nn.Module):
    def __init__(self, channels, filters, kernel, stride, padding):
        super().__init__()
        self.conv = nn.Conv2d(channels, filters, kernel, stride=stride, padding=padding)
        self._key = None
        self._weights = None
        self._bias = None

    def _pack(self, key):
        # [filter][kh][c][kw padded to 12], padded to 400, then [step of 16 k][half][filter][8 k]
        with torch.no_grad():
            w = self.conv.weight.detach().to(torch.bfloat16)
            w = F.pad(w.permute(0, 2, 1, 3), (0, 1)).reshape(96, 396)
            w = F.pad(w, (0, 4)).reshape(96, 25, 2, 8)
            self._weights = w.permute(1, 2, 0, 3).contiguous()
            self._bias = self.conv.bias.detach().to(torch.float32).contiguous()
        self._key = key

    def forward(self, x):
        w = self.conv.weight
        b = self.conv.bias
        key = (w.data_ptr(), w._version, b.data_ptr(), b._version)
        if key != self._key:
            self._pack(key)
        return conv_module.alexnet_conv(x, self._weights, self._bias)
