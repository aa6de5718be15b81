import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

cuda_source = r"""
#include <torch/types.h>
#include <cuda_runtime.h>
#include <c10/cuda/CUDAStream.h>
#include <c10/cuda/CUDAException.h>

// Transposed convolution (k=3, s=2, p=1, op=1) as 8 output parities, each a small
// implicit GEMM over the 2x2x2 input neighbourhood. Operands are rounded to TF32
// (10 bits of mantissa, to nearest) and carried as fp16 (also 10 bits; weights are
// scaled by 1024 so that they stay normal numbers), accumulated in fp32.
// A = weights (16 channels x 16 ci), B = x (16 ci x 8 positions).
//
// Warps 0-7 make channels 0-15 of the block's 32, warps 8-15 make channels 16-31. Each group
// has a ring of two stages, one an output plane (pd): 16 channels x 2 KB of add_input come in
// by bulk copies, are finished in place and leave by bulk copies. The next tile's x is loaded
// during the products of this one.

#define W_U4 3456            // 27 taps * 2 channel tiles * 2 k-steps * 32 lanes
#define X_POS 306            // 2 * 9 * 17 positions
#define X_U4 (X_POS * 4)
#define RUN 2048             // bytes of one channel in a stage
#define PITCH 2112
#define STAGE_BYTES (16 * PITCH)
#define RING_OFF ((W_U4 + 2 * X_U4) * 16)
#define BAR_OFF (RING_OFF + 4 * STAGE_BYTES)
#define SMEM_BYTES (BAR_OFF + 32)
#define NBLOCKS 132
#define STEP (NBLOCKS / 2)
#define NTILES 4096          // 128 images * 16 slices * 2 halves of the rows

__device__ __forceinline__ float round_tf32(float v) {
    return __uint_as_float((__float_as_uint(v) + 0x1000u) & 0xffffe000u);
}

__device__ __forceinline__ unsigned pack_half2(float lo, float hi) {
    unsigned d;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(d) : "f"(hi), "f"(lo));
    return d;
}

__device__ __forceinline__ void mma16816(float (&c)[4], const uint4& a, unsigned b0, unsigned b1) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
        "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};\n"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(b0), "r"(b1));
}

__device__ __forceinline__ float finish(float acc, float bias, float add) {
    float v = fmaf(acc, 0.0009765625f, bias) + add;
    float h = v * fminf(fmaxf(v + 3.0f, 0.0f), 6.0f) * 0.16666666666666666f;
    return v * h;
}

__device__ __forceinline__ void mbar_init(unsigned bar, unsigned count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" :: "r"(bar), "r"(count) : "memory");
}

__device__ __forceinline__ void mbar_expect(unsigned bar, unsigned bytes) {
    asm volatile("{\n\t.reg .b64 st;\n\t"
                 "mbarrier.arrive.expect_tx.shared::cta.b64 st, [%0], %1;\n\t}"
                 :: "r"(bar), "r"(bytes) : "memory");
}

__device__ __forceinline__ void mbar_wait(unsigned bar, unsigned parity) {
    unsigned done;
    do {
        asm volatile("{\n\t.reg .pred p;\n\t"
                     "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n\t"
                     "selp.u32 %0, 1, 0, p;\n\t}"
                     : "=r"(done) : "r"(bar), "r"(parity) : "memory");
    } while (done == 0);
}

__device__ __forceinline__ void bulk_load(unsigned dst, const void* src, unsigned bytes, unsigned bar) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
                 :: "r"(dst), "l"(src), "r"(bytes), "r"(bar) : "memory");
}

__device__ __forceinline__ void bulk_store(void* dst, unsigned src, unsigned bytes) {
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;"
                 :: "l"(dst), "r"(src), "r"(bytes) : "memory");
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

// eight input channels of one position; idx runs over [4 groups of channels][2 slices][9 rows][16 columns]
__device__ __forceinline__ void load_x(const float* __restrict__ x, int tile, int idx, float (&f)[8]) {
    const int n = tile >> 5;
    const int id = (tile >> 1) & 15;
    const int ih0 = (tile & 1) * 8;
    const int iw = idx & 15;
    const int rr = idx >> 4;
    const int ch = rr / 18;
    const int dr = rr - ch * 18;
    const int dd = dr >= 9 ? 1 : 0;
    const int ih = ih0 + dr - dd * 9;
    const bool ok = ih < 16 && id + dd < 16;
    const float* p = x + n * 131072 + (id + dd) * 256 + ch * 8 * 4096 + ih * 16 + iw;
#pragma unroll
    for (int j = 0; j < 8; j++) f[j] = ok ? __ldg(p + j * 4096) : 0.0f;
}

__device__ __forceinline__ void store_x(uint4* xs, int idx, const float (&f)[8]) {
    const int iw = idx & 15;
    const int rr = idx >> 4;
    const int ch = rr / 18;
    const int dr = rr - ch * 18;
    uint4 v;
    v.x = pack_half2(round_tf32(f[0]), round_tf32(f[1]));
    v.y = pack_half2(round_tf32(f[2]), round_tf32(f[3]));
    v.z = pack_half2(round_tf32(f[4]), round_tf32(f[5]));
    v.w = pack_half2(round_tf32(f[6]), round_tf32(f[7]));
    const int pos = dr * 17 + iw;
    xs[pos * 4 + (ch ^ ((pos >> 1) & 3))] = v;
}

// first element of a channel's run of 512 in add_input and in the output
__device__ __forceinline__ int run_offset(int tile, int pd, int co) {
    const int n = tile >> 5;
    const int id = (tile >> 1) & 15;
    return (n * 64 + co) * 32768 + (id * 2 + pd) * 1024 + (tile & 1) * 512;
}

// by a whole warp: the stage's last bulk stores have been read, then its bulk loads go out
__device__ __forceinline__ void refill(const float* __restrict__ add, int tile, int pd, int co_base,
                                       unsigned stage, unsigned bar, int lane) {
    if (lane < 16) asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
    __syncwarp();
    if (lane == 0) mbar_expect(bar, 16 * RUN);
    __syncwarp();
    if (lane < 16) bulk_load(stage + lane * PITCH, add + run_offset(tile, pd, co_base + lane), RUN, bar);
}

__global__ void __launch_bounds__(512, 1)
convt_add_hardswish_kernel(const float* __restrict__ x, const float* __restrict__ add,
                           const uint4* __restrict__ wp, const float* __restrict__ bias,
                           float* __restrict__ out) {
    extern __shared__ __align__(128) uint4 smem[];
    uint4* ws = smem;
    uint4* xs_all = smem + W_U4;
    const unsigned sbase = (unsigned)__cvta_generic_to_shared(smem);

    const int tid = threadIdx.x;
    const int lane = tid & 31;
    const int warp = (tid >> 5) & 7;
    const int ct = tid >> 8;
    const int g = lane >> 2;
    const int t = lane & 3;
    const int hc = blockIdx.x & 1;
    const int co_base = hc * 32 + ct * 16;

    unsigned char* ring = reinterpret_cast<unsigned char*>(smem) + RING_OFF + ct * 2 * STAGE_BYTES;
    const unsigned ring_s = sbase + RING_OFF + ct * 2 * STAGE_BYTES;
    const unsigned bars = sbase + BAR_OFF + ct * 16;

    if (tid == 0) {
#pragma unroll
        for (int i = 0; i < 4; i++) mbar_init(sbase + BAR_OFF + i * 8, 1);
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    }
    __syncthreads();

    int tile = blockIdx.x >> 1;
    if (warp == 0) {
        refill(add, tile, 0, co_base, ring_s, bars, lane);
        refill(add, tile, 1, co_base, ring_s + STAGE_BYTES, bars + 8, lane);
    }

    const uint4* wsrc = wp + hc * W_U4;
    for (int i = tid; i < W_U4; i += 512) ws[i] = wsrc[i];
    // column 16 lies outside the input: zero, written once in both buffers
    if (tid < 144) {
        const int buf = tid >= 72 ? 1 : 0;
        const int q = tid - buf * 72;
        const int pos = (q >> 2) * 17 + 16;
        xs_all[buf * X_U4 + pos * 4 + (q & 3)] = make_uint4(0u, 0u, 0u, 0u);
    }
    for (int idx = tid; idx < 1152; idx += 512) {
        float f[8];
        load_x(x, tile, idx, f);
        store_x(xs_all, idx, f);
    }
    const float bias0 = __ldg(bias + co_base + g);
    const float bias1 = __ldg(bias + co_base + g + 8);
    const uint4* wct = ws + ct * 64 + lane;
    __syncthreads();

    int it = 0;
#pragma unroll 1
    for (; tile < NTILES; tile += STEP, it++) {
        const int next = tile + STEP;
        const bool more = next < NTILES;
        const uint4* xs = xs_all + (it & 1) * X_U4;
        uint4* xn = xs_all + ((it & 1) ^ 1) * X_U4;

        // a warp makes one input row (2 x 2 output rows) for 16 channels
#pragma unroll
        for (int pd = 0; pd < 2; pd++) {
            unsigned char* stage = ring + pd * STAGE_BYTES;
#pragma unroll
            for (int ph = 0; ph < 2; ph++) {
                // the next tile's x: 512 of 1152 pieces in each of the last three quarters
                const int part = pd * 2 + ph - 1;
                const int xidx = tid + part * 512;
                const bool fetch = part >= 0 && more && xidx < 1152;
                float xf[8];
                if (fetch) load_x(x, next, xidx, xf);

                float acc[2][2][4];   // [pw][n tile]
#pragma unroll
                for (int a = 0; a < 2; a++)
#pragma unroll
                    for (int b = 0; b < 2; b++)
#pragma unroll
                        for (int c = 0; c < 4; c++) acc[a][b][c] = 0.0f;

#pragma unroll
                for (int dd = 0; dd <= pd; dd++) {
#pragma unroll
                    for (int dh = 0; dh <= ph; dh++) {
                        const int kd = pd == 0 ? 1 : (dd == 0 ? 2 : 0);
                        const int kh = ph == 0 ? 1 : (dh == 0 ? 2 : 0);
                        const int tap0 = (kd * 3 + kh) * 3;
                        uint4 bf[2][2];   // [n tile][dw]
#pragma unroll
                        for (int nt = 0; nt < 2; nt++)
#pragma unroll
                            for (int dw = 0; dw < 2; dw++) {
                                int pos = (dd * 9 + warp + dh) * 17 + nt * 8 + g + dw;
                                bf[nt][dw] = xs[pos * 4 + (t ^ ((pos >> 1) & 3))];
                            }
#pragma unroll
                        for (int kw = 0; kw < 3; kw++) {
                            const int pw = kw == 1 ? 0 : 1;
                            const int dw = kw == 0 ? 1 : 0;
                            uint4 a0 = wct[(tap0 + kw) * 128];
                            uint4 a1 = wct[(tap0 + kw) * 128 + 32];
#pragma unroll
                            for (int nt = 0; nt < 2; nt++)
                                mma16816(acc[pw][nt], a0, bf[nt][dw].x, bf[nt][dw].y);
#pragma unroll
                            for (int nt = 0; nt < 2; nt++)
                                mma16816(acc[pw][nt], a1, bf[nt][dw].z, bf[nt][dw].w);
                        }
                    }
                }

                // refill the stage that was stored last
                if (ph == 0 && warp == 0) {
                    if (pd == 0) {
                        if (it > 0) refill(add, tile, 1, co_base, ring_s + STAGE_BYTES, bars + 8, lane);
                    } else {
                        if (more) refill(add, next, 0, co_base, ring_s, bars, lane);
                    }
                }

                if (ph == 0) mbar_wait(bars + pd * 8, (unsigned)(it & 1));

#pragma unroll
                for (int nt = 0; nt < 2; nt++)
#pragma unroll
                    for (int h = 0; h < 2; h++) {
                        const float bb = h == 0 ? bias0 : bias1;
                        float4* q = reinterpret_cast<float4*>(
                            stage + (g + 8 * h) * PITCH + (warp * 2 + ph) * 128 + nt * 64 + t * 16);
                        const float4 ad = *q;
                        float4 r;
                        r.x = finish(acc[0][nt][2 * h], bb, ad.x);
                        r.y = finish(acc[1][nt][2 * h], bb, ad.y);
                        r.z = finish(acc[0][nt][2 * h + 1], bb, ad.z);
                        r.w = finish(acc[1][nt][2 * h + 1], bb, ad.w);
                        *q = r;
                    }

                if (fetch) store_x(xn, xidx, xf);
            }

            // the plane is complete: hand it to the bulk copies
            asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
            asm volatile("bar.sync %0, 256;" :: "r"(1 + ct) : "memory");
            if (warp == 0 && lane < 16)
                bulk_store(out + run_offset(tile, pd, co_base + lane),
                           ring_s + pd * STAGE_BYTES + lane * PITCH, RUN);
        }
        __syncthreads();
    }

    if (warp == 0 && lane < 16) asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}

torch::Tensor convt_add_hardswish(torch::Tensor x, torch::Tensor add, torch::Tensor wp, torch::Tensor bias) {
    TORCH_CHECK(x.is_cuda() && x.is_contiguous() && x.numel() == 16777216LL, "x");
    TORCH_CHECK(add.is_cuda() && add.is_contiguous() && add.numel() == 268435456LL, "add_input");
    TORCH_CHECK(wp.is_cuda() && wp.is_contiguous() && wp.numel() == 2 * W_U4 * 4, "weights");
    auto out = torch::empty_like(add);
    C10_CUDA_CHECK(cudaFuncSetAttribute(convt_add_hardswish_kernel,
                                        cudaFuncAttributeMaxDynamicSharedMemorySize, SMEM_BYTES));
    convt_add_hardswish_kernel<<<NBLOCKS, 512, SMEM_BYTES, c10::cuda::getCurrentCUDAStream().stream()>>>(
        x.data_ptr<float>(), add.data_ptr<float>(),
        reinterpret_cast<const uint4*>(wp.data_ptr<int>()),
        bias.data_ptr<float>(), out.data_ptr<float>());
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}
"""

cpp_source = """
torch::Tensor convt_add_hardswish(torch::Tensor x, torch::Tensor add, torch::Tensor wp, torch::Tensor bias);
"""

_ext = load_inline(
    name="convt3d_add_hardswish_bulk_ext",
    cpp_sources=cpp_source,
    cuda_sources=cuda_source,
    functions=["convt_add_hardswish"],
    extra_cuda_cflags=["-O3"],
    verbose=False,
)


def _pack_weight(weight):
    # weight: (32 ci, 64 co, 3, 3, 3) -> mma fragments
    # [co half 2][tap 27][co tile 2][k step 2][lane 32][word 4][pair 2], fp16 seen as int32
    w = weight.detach().float().contiguous()
    dev = w.device
    bits = w.view(torch.int32)
    w = ((bits + 0x1000) & -8192).view(torch.float32)
    w = (w * 1024.0).reshape(32, 64, 27)
    half = torch.arange(2, device=dev).view(2, 1, 1, 1, 1, 1, 1)
    tap = torch.arange(27, device=dev).view(1, 27, 1, 1, 1, 1, 1)
    tile = torch.arange(2, device=dev).view(1, 1, 2, 1, 1, 1, 1)
    step = torch.arange(2, device=dev).view(1, 1, 1, 2, 1, 1, 1)
    lane = torch.arange(32, device=dev).view(1, 1, 1, 1, 32, 1, 1)
    word = torch.arange(4, device=dev).view(1, 1, 1, 1, 1, 4, 1)
    pair = torch.arange(2, device=dev).view(1, 1, 1, 1, 1, 1, 2)
    co = half * 32 + tile * 16 + lane // 4 + 8 * (word % 2)
    ci = 8 * (lane % 4) + 2 * (2 * step + word // 2) + pair
    packed = w[ci, co, tap].to(torch.float16).contiguous()
    return packed.reshape(-1).view(torch.int32).clone()


class ModelNew(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size, stride, padding, output_padding, bias_shape):
        super(ModelNew, self).__init__()
        self.conv_transpose = nn.ConvTranspose3d(in_channels, out_channels, kernel_size, stride=stride,
                                                 padding=padding, output_padding=output_padding)
        self.bias = nn.Parameter(torch.randn(bias_shape))
        # kept as integers, so that a cast of the module leaves the packed bits alone
        self.register_buffer("packed_weight", _pack_weight(self.conv_transpose.weight), persistent=False)

    def forward(self, x, add_input):
        return _ext.convt_add_hardswish(x.contiguous(), add_input.contiguous(), self.packed_weight,
                                        self.conv_transpose.bias.detach())
