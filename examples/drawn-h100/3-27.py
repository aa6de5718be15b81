import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

cuda_src = r'''
#include <torch/types.h>
#include <cuda_runtime.h>
#include <stdint.h>
#include <vector>
#include <c10/cuda/CUDAStream.h>
#include <c10/cuda/CUDAException.h>

// Every convolution stores its raw result (without its bias, which batch normalization removes)
// and adds up the channels' sums and squares; where a pooling follows, it stores the pooled raw
// result: the largest where gamma >= 0, the smallest where gamma < 0, since normalization and ReLU
// are monotonic.  The next kernel normalizes while it loads.  Layout: [n][channel / 4][y][x][4].

constexpr int NIMG = 8;
constexpr int STAT = 512;                 // doubles a layer: 256 sums, 256 sums of squares

__device__ __forceinline__ uint32_t smem_u32(const void* p) {
    return (uint32_t)__cvta_generic_to_shared(p);
}
__device__ __forceinline__ float round_tf32(float v) {
    return __uint_as_float((__float_as_uint(v) + 0x1000u) & 0xffffe000u);
}
__device__ __forceinline__ void bn_coef(const double* st, const float* gamma, const float* beta, int c,
                                        double inv_count, float& scale, float& shift) {
    const double mean = st[c] * inv_count;
    double var = st[256 + c] * inv_count - mean * mean;
    if (var < 0.0) var = 0.0;
    const float inv = (float)(1.0 / sqrt(var + 1e-5));
    scale = gamma[c] * inv;
    shift = (float)((double)beta[c] - mean * (double)scale);
}

// ---------------------------------------------------------------------------------------------
// The first convolution, 3 to 64 channels: fused multiply-adds in full single precision.
// A block has 32 x 8 pixels and all channels; a warp 32 x 4 pixels and 16 channels.
__global__ void __launch_bounds__(256, 2) conv_first(
    const float* __restrict__ x, const float* __restrict__ w, float4* __restrict__ out, double* __restrict__ st)
{
    __shared__ float sx[3][10][36];
    __shared__ __align__(16) float sw[27 * 64];
    __shared__ float red[8][32];

    const int tid = threadIdx.x, warp = tid >> 5, lane = tid & 31;
    const int cg = warp & 3, yg = warp >> 2;
    const int x0 = blockIdx.x * 32, y0 = blockIdx.y * 8, n = blockIdx.z;

    for (int i = tid; i < 27 * 64; i += 256) sw[i] = w[i];
    for (int i = tid; i < 3 * 10 * 34; i += 256) {
        const int c = i / 340, r = (i % 340) / 34, q = i % 34;
        const int yy = y0 + r - 1, xx = x0 + q - 1;
        float v = 0.f;
        if (yy >= 0 && yy < 224 && xx >= 0 && xx < 224)
            v = x[((n * 3 + c) * 224 + yy) * 224 + xx];
        sx[c][r][q] = v;
    }
    __syncthreads();

    float acc[4][16];
    #pragma unroll
    for (int i = 0; i < 4; ++i)
        #pragma unroll
        for (int o = 0; o < 16; ++o) acc[i][o] = 0.f;

    #pragma unroll 1
    for (int c = 0; c < 3; ++c) {
        #pragma unroll
        for (int s = 0; s < 3; ++s) {
            float v[6];
            #pragma unroll
            for (int i = 0; i < 6; ++i) v[i] = sx[c][yg * 4 + i][lane + s];
            #pragma unroll
            for (int r = 0; r < 3; ++r) {
                const float4* wq = reinterpret_cast<const float4*>(sw + ((c * 3 + s) * 3 + r) * 64 + cg * 16);
                #pragma unroll
                for (int q = 0; q < 4; ++q) {
                    const float4 f = wq[q];
                    #pragma unroll
                    for (int i = 0; i < 4; ++i) {
                        acc[i][q * 4 + 0] = fmaf(v[i + r], f.x, acc[i][q * 4 + 0]);
                        acc[i][q * 4 + 1] = fmaf(v[i + r], f.y, acc[i][q * 4 + 1]);
                        acc[i][q * 4 + 2] = fmaf(v[i + r], f.z, acc[i][q * 4 + 2]);
                        acc[i][q * 4 + 3] = fmaf(v[i + r], f.w, acc[i][q * 4 + 3]);
                    }
                }
            }
        }
    }

    #pragma unroll
    for (int i = 0; i < 4; ++i) {
        const int yy = y0 + yg * 4 + i;
        #pragma unroll
        for (int q = 0; q < 4; ++q)
            out[((n * 16 + cg * 4 + q) * 224 + yy) * 224 + x0 + lane] =
                make_float4(acc[i][q * 4], acc[i][q * 4 + 1], acc[i][q * 4 + 2], acc[i][q * 4 + 3]);
    }

    float v[32];
    #pragma unroll
    for (int o = 0; o < 16; ++o) {
        float s = 0.f, q = 0.f;
        #pragma unroll
        for (int i = 0; i < 4; ++i) { s += acc[i][o]; q = fmaf(acc[i][o], acc[i][o], q); }
        v[o] = s;
        v[16 + o] = q;
    }
    // After five halvings lane i holds the warp's total of v[i].
    #pragma unroll
    for (int off = 16; off > 0; off >>= 1) {
        const bool up = (lane & off) != 0;
        #pragma unroll
        for (int j = 0; j < 16; ++j) {
            if (j < off) {
                const float keep = up ? v[j + off] : v[j];
                const float send = up ? v[j] : v[j + off];
                v[j] = keep + __shfl_xor_sync(0xffffffffu, send, off);
            }
        }
    }
    red[warp][lane] = v[0];
    __syncthreads();
    if (tid < 128) {
        const int which = tid >> 6, c = tid & 63;
        const int k = which * 16 + (c & 15);
        atomicAdd(st + which * 256 + c, (double)(red[c >> 4][k] + red[4 + (c >> 4)][k]));
    }
}

// ---------------------------------------------------------------------------------------------
__device__ __forceinline__ void mbar_init(uint32_t bar, uint32_t count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" :: "r"(bar), "r"(count) : "memory");
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
            "}\n"
            : "=r"(ok) : "r"(bar), "r"(parity) : "memory");
    } while (!ok);
}
__device__ __forceinline__ void wgmma_tile(float (&d)[32], uint64_t da, uint64_t db, int accumulate) {
    asm volatile(
        "{\n"
        ".reg .pred p;\n"
        "setp.ne.b32 p, %34, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n64k8.f32.tf32.tf32 "
        "{%0, %1, %2, %3, %4, %5, %6, %7, "
        "%8, %9, %10, %11, %12, %13, %14, %15, "
        "%16, %17, %18, %19, %20, %21, %22, %23, "
        "%24, %25, %26, %27, %28, %29, %30, %31}, "
        "%32, %33, p, 1, 1;\n"
        "}\n"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),
          "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]),
          "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]),
          "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31])
        : "l"(da), "l"(db), "r"(accumulate));
}

__device__ __forceinline__ void wgmma_tile(float (&d)[64], uint64_t da, uint64_t db, int accumulate) {
    asm volatile(
        "{\n"
        ".reg .pred p;\n"
        "setp.ne.b32 p, %66, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n128k8.f32.tf32.tf32 "
        "{%0, %1, %2, %3, %4, %5, %6, %7, "
        "%8, %9, %10, %11, %12, %13, %14, %15, "
        "%16, %17, %18, %19, %20, %21, %22, %23, "
        "%24, %25, %26, %27, %28, %29, %30, %31, "
        "%32, %33, %34, %35, %36, %37, %38, %39, "
        "%40, %41, %42, %43, %44, %45, %46, %47, "
        "%48, %49, %50, %51, %52, %53, %54, %55, "
        "%56, %57, %58, %59, %60, %61, %62, %63}, "
        "%64, %65, p, 1, 1;\n"
        "}\n"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),
          "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]),
          "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]),
          "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31]),
          "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]),
          "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]),
          "+f"(d[48]), "+f"(d[49]), "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55]),
          "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59]), "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63])
        : "l"(da), "l"(db), "r"(accumulate));
}

template <int R> __device__ __forceinline__ void regs_dec() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" :: "n"(R));
}
template <int R> __device__ __forceinline__ void regs_inc() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" :: "n"(R));
}

// 3 x 3 convolution as an implicit matrix product on wgmma (TF32), NT output channels a tile.
// The pixels are boxes of 8 x 8: either four that make a square of 16 x 16 (QUAD), two for each of
// two warpgroups, or three that follow each other in the batch, one for each of three warpgroups.
// A step brings 8 input channels of the pixels with their border, once for all nine taps: without
// swizzle, a tap is nothing but another start address.
template <int CIN, int COUT, int H, bool POOL, bool QUAD>
struct Conv {
    static constexpr int W = H;
    static constexpr int NT = COUT >= 128 ? 128 : 64;
    static constexpr int CWG = QUAD ? 2 : 3;              // warpgroups that multiply
    static constexpr int MB = QUAD ? 2 : 1;               // boxes for each of them
    static constexpr int THREADS = 128 * (CWG + 1);
    static constexpr int PER_SM = NT == 64 ? 2 : 1;
    static constexpr int GRID = 132 * PER_SM;
    static constexpr int STAGES = NT == 64 ? 3 : 4;
    static constexpr int REG_LOAD = NT == 64 ? 48 : (QUAD ? 88 : 80);
    static constexpr int REG_MULT = NT == 64 ? 96 : (QUAD ? 208 : 144);
    static constexpr int B_BYTES = 9 * 8 * NT * 4;        // nine taps, 8 input channels
    static constexpr int PITCH = QUAD ? 18 : 10;
    static constexpr int PXT = QUAD ? 324 : 300;
    static constexpr int NI = (PXT + 127) / 128;
    static constexpr int A_BYTES = 2 * PXT * 16;
    static constexpr int STAGE = A_BYTES + B_BYTES;
    static constexpr int SMEM = STAGES * STAGE;
    static constexpr int NK = CIN / 8;
    static constexpr int NB = COUT / NT;
    static constexpr int TX = QUAD ? W / 16 : W / 8;
    static constexpr int TY = QUAD ? H / 16 : H / 8;
    static constexpr int BOXES = TX * TY * NIMG;          // squares, if QUAD
    static constexpr int MT = QUAD ? BOXES : (BOXES + 2) / 3;
    static constexpr int TILES = MT * NB;
    static constexpr int HO = POOL ? H / 2 : H;
};

template <int CIN, int COUT, int H, bool POOL, bool QUAD>
__global__ void __launch_bounds__(Conv<CIN, COUT, H, POOL, QUAD>::THREADS, Conv<CIN, COUT, H, POOL, QUAD>::PER_SM)
conv3x3(
    const float4* __restrict__ in, const float* __restrict__ wp,
    const double* __restrict__ st_in, const float* __restrict__ gamma_in, const float* __restrict__ beta_in,
    double inv_count, const float* __restrict__ gamma_out, float* __restrict__ out, double* __restrict__ st_out)
{
    using C = Conv<CIN, COUT, H, POOL, QUAD>;
    constexpr int W = C::W;
    constexpr int HW = H * W;
    constexpr int NT = C::NT;
    constexpr int STAGES = C::STAGES;
    constexpr int GRID = C::GRID;
    constexpr int B_BYTES = C::B_BYTES;
    constexpr int THREADS = C::THREADS;
    constexpr int CWARPS = 4 * C::CWG;

    extern __shared__ __align__(128) unsigned char dyn[];
    __shared__ __align__(16) float s_scale[CIN];
    __shared__ __align__(16) float s_shift[CIN];
    __shared__ __align__(16) float s_sign[NT];
    __shared__ float s_stat[CWARPS][2 * NT];
    __shared__ __align__(8) uint64_t full_bar[STAGES];
    __shared__ __align__(8) uint64_t empty_bar[STAGES];

    const int tid = threadIdx.x;
    const int wg = tid >> 7;
    const int lane = tid & 31;
    const int nb = blockIdx.x % C::NB;    // GRID is a multiple of NB
    const uint32_t base = smem_u32(dyn);
    const uint32_t full = smem_u32(full_bar);
    const uint32_t empty = smem_u32(empty_bar);

    for (int c = tid; c < CIN; c += THREADS) {
        float a, b;
        bn_coef(st_in, gamma_in, beta_in, c, inv_count, a, b);
        s_scale[c] = a;
        s_shift[c] = b;
    }
    if (tid < NT) s_sign[tid] = gamma_out[nb * NT + tid] < 0.f ? -1.f : 1.f;
    for (int i = tid; i < CWARPS * 2 * NT; i += THREADS) (&s_stat[0][0])[i] = 0.f;
    if (tid == 0) {
        for (int i = 0; i < STAGES; ++i) {
            mbar_init(full + i * 8, 129);
            mbar_init(empty + i * 8, CWARPS);
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    }
    __syncthreads();

    if (wg == 0) {
        // Loads, normalizes, rounds and stores; the weights come by a bulk copy.
        regs_dec<C::REG_LOAD>();
        int s = 0;
        uint32_t parity = 1;
        for (int tile = blockIdx.x; tile < C::TILES; tile += GRID) {
            const int mt = tile / C::NB;
            int off[C::NI];
            #pragma unroll
            for (int i = 0; i < C::NI; ++i) {
                const int p = tid + 128 * i;
                int o = -1;
                if (p < C::PXT) {
                    const int box = QUAD ? mt : mt * 3 + p / 100;
                    const int q = QUAD ? p : p % 100;
                    const int n = box / (C::TX * C::TY);
                    const int rem = box % (C::TX * C::TY);
                    const int yy = (rem / C::TX) * (QUAD ? 16 : 8) - 1 + q / C::PITCH;
                    const int xx = (rem % C::TX) * (QUAD ? 16 : 8) - 1 + q % C::PITCH;
                    if (box < C::BOXES && yy >= 0 && yy < H && xx >= 0 && xx < W)
                        o = n * (CIN / 4) * HW + yy * W + xx;
                }
                off[i] = o;
            }
            #pragma unroll 1
            for (int kc = 0; kc < C::NK; ++kc) {
                float4 v[2][C::NI];
                #pragma unroll
                for (int q = 0; q < 2; ++q)
                    #pragma unroll
                    for (int i = 0; i < C::NI; ++i) {
                        v[q][i] = make_float4(0.f, 0.f, 0.f, 0.f);
                        if (off[i] >= 0) v[q][i] = __ldg(in + off[i] + (2 * kc + q) * HW);
                    }
                mbar_wait(empty + s * 8, parity);
                const uint32_t bar = full + s * 8;
                if (tid == 0) {
                    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
                                 :: "r"(bar), "r"(B_BYTES) : "memory");
                    asm volatile(
                        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
                        :: "r"(base + s * C::STAGE + C::A_BYTES),
                           "l"(wp + (size_t)(nb * C::NK + kc) * (B_BYTES / 4)), "r"(B_BYTES), "r"(bar) : "memory");
                }
                float4* dst = reinterpret_cast<float4*>(dyn + s * C::STAGE);
                #pragma unroll
                for (int q = 0; q < 2; ++q) {
                    const float4 a = *reinterpret_cast<const float4*>(s_scale + kc * 8 + q * 4);
                    const float4 b = *reinterpret_cast<const float4*>(s_shift + kc * 8 + q * 4);
                    #pragma unroll
                    for (int i = 0; i < C::NI; ++i) {
                        const int p = tid + 128 * i;
                        if (p < C::PXT) {
                            float4 u = make_float4(0.f, 0.f, 0.f, 0.f);
                            if (off[i] >= 0) {
                                u.x = round_tf32(fmaxf(fmaf(v[q][i].x, a.x, b.x), 0.f));
                                u.y = round_tf32(fmaxf(fmaf(v[q][i].y, a.y, b.y), 0.f));
                                u.z = round_tf32(fmaxf(fmaf(v[q][i].z, a.z, b.z), 0.f));
                                u.w = round_tf32(fmaxf(fmaf(v[q][i].w, a.w, b.w), 0.f));
                            }
                            dst[q * C::PXT + p] = u;
                        }
                    }
                }
                asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
                mbar_arrive(bar);
                if (++s == STAGES) { s = 0; parity ^= 1; }
            }
        }
    } else {
        regs_inc<C::REG_MULT>();
        const int cw = wg - 1;
        const int w4 = (tid >> 5) & 3;
        const int g = lane >> 2, t = lane & 3;
        float* stat = s_stat[cw * 4 + w4];

        // Descriptors without swizzle: the leading offset leads to the next four channels, the
        // stride offset to the next eight rows; both in units of 16 bytes.
        constexpr uint64_t DA = ((uint64_t)C::PXT << 16) | ((uint64_t)C::PITCH << 32);
        constexpr uint64_t DB = ((uint64_t)NT << 16) | ((uint64_t)8 << 32);
        const uint32_t box0 = QUAD ? cw * 8 * C::PITCH : cw * 100;

        float acc[C::MB][NT / 2];
        #pragma unroll
        for (int m = 0; m < C::MB; ++m)
            #pragma unroll
            for (int i = 0; i < NT / 2; ++i) acc[m][i] = 0.f;

        int s = 0, prev = 0;
        uint32_t parity = 0;
        for (int tile = blockIdx.x; tile < C::TILES; tile += GRID) {
            #pragma unroll
            for (int m = 0; m < C::MB; ++m)
                #pragma unroll
                for (int i = 0; i < NT / 2; ++i) asm volatile("" : "+f"(acc[m][i]) :: "memory");
            #pragma unroll 1
            for (int kc = 0; kc < C::NK; ++kc) {
                mbar_wait(full + s * 8, parity);
                const uint32_t st = (base + s * C::STAGE) >> 4;
                const uint64_t da0 = DA | (uint64_t)(st + box0);
                const uint64_t db = DB | (uint64_t)(st + C::A_BYTES / 16);
                asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
                #pragma unroll
                for (int tap = 0; tap < 9; ++tap) {
                    const int shift = (tap / 3) * C::PITCH + tap % 3;
                    #pragma unroll
                    for (int m = 0; m < C::MB; ++m)
                        wgmma_tile(acc[m], da0 + shift + 8 * m, db + tap * (2 * NT), (kc | tap) != 0);
                }
                asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
                if (kc > 0) {
                    asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
                    if (lane == 0) mbar_arrive(empty + prev * 8);
                }
                prev = s;
                if (++s == STAGES) { s = 0; parity ^= 1; }
            }
            asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
            #pragma unroll
            for (int m = 0; m < C::MB; ++m)
                #pragma unroll
                for (int i = 0; i < NT / 2; ++i) asm volatile("" : "+f"(acc[m][i]) :: "memory");
            if (lane == 0) mbar_arrive(empty + prev * 8);

            // A warp's 16 rows are two lines of a box: lines 2 * w4 and 2 * w4 + 1, pixel g.
            const int mt = tile / C::NB;
            const int box = QUAD ? mt : mt * 3 + cw;
            const bool valid = box < C::BOXES;
            const int n = box / (C::TX * C::TY);
            const int rem = box % (C::TX * C::TY);
            const int ty = (rem / C::TX) * (QUAD ? 16 : 8) + (QUAD ? cw * 8 : 0);
            const int tx = (rem % C::TX) * (QUAD ? 16 : 8);
            constexpr int HO = C::HO;
            const int c4 = nb * (NT / 4) + (t >> 1);

            #pragma unroll
            for (int j = 0; j < NT / 8; ++j) {
                float s0 = 0.f, s1 = 0.f, q0 = 0.f, q1 = 0.f;
                const float2 sg = *reinterpret_cast<const float2*>(s_sign + 8 * j + 2 * t);
                #pragma unroll
                for (int m = 0; m < C::MB; ++m) {
                    const float d0 = acc[m][4 * j], d1 = acc[m][4 * j + 1];
                    const float d2 = acc[m][4 * j + 2], d3 = acc[m][4 * j + 3];
                    s0 += d0 + d2;
                    s1 += d1 + d3;
                    q0 = fmaf(d0, d0, fmaf(d2, d2, q0));
                    q1 = fmaf(d1, d1, fmaf(d3, d3, q1));
                    const int bx = tx + (QUAD ? m * 8 : 0);
                    float* plane = out + (size_t)(n * (COUT / 4) + c4 + 2 * j) * (HO * HO * 4) + 2 * (t & 1);
                    if (POOL) {
                        float u0 = fmaxf(d0 * sg.x, d2 * sg.x);
                        float u1 = fmaxf(d1 * sg.y, d3 * sg.y);
                        u0 = fmaxf(u0, __shfl_xor_sync(0xffffffffu, u0, 4));
                        u1 = fmaxf(u1, __shfl_xor_sync(0xffffffffu, u1, 4));
                        if (valid && (g & 1) == 0) {
                            const int yo = ty / 2 + w4, xo = bx / 2 + (g >> 1);
                            *reinterpret_cast<float2*>(plane + (yo * HO + xo) * 4) = make_float2(u0 * sg.x, u1 * sg.y);
                        }
                    } else if (valid) {
                        const int yo = ty + 2 * w4, xo = bx + g;
                        *reinterpret_cast<float2*>(plane + (yo * HO + xo) * 4) = make_float2(d0, d1);
                        *reinterpret_cast<float2*>(plane + ((yo + 1) * HO + xo) * 4) = make_float2(d2, d3);
                    }
                }
                // Four values over eight lanes: bits 4 and 3 of the lane pick the value it keeps.
                const bool b4 = (lane & 16) != 0, b3 = (lane & 8) != 0;
                float k0 = b4 ? q0 : s0, k1 = b4 ? q1 : s1;
                const float g0 = b4 ? s0 : q0, g1 = b4 ? s1 : q1;
                k0 += __shfl_xor_sync(0xffffffffu, g0, 16);
                k1 += __shfl_xor_sync(0xffffffffu, g1, 16);
                float k = b3 ? k1 : k0;
                const float gg = b3 ? k0 : k1;
                k += __shfl_xor_sync(0xffffffffu, gg, 8);
                k += __shfl_xor_sync(0xffffffffu, k, 4);
                if ((lane & 4) == 0)
                    stat[(b4 ? NT : 0) + 8 * j + 2 * t + (b3 ? 1 : 0)] += k;
            }
        }
        asm volatile("bar.sync 1, %0;" :: "n"(128 * C::CWG) : "memory");
        const int ct = tid - 128;
        if (ct < 2 * NT) {
            double v = 0.0;
            #pragma unroll
            for (int i = 0; i < CWARPS; ++i) v += (double)s_stat[i][ct];
            atomicAdd(st_out + (ct / NT) * 256 + nb * NT + ct % NT, v);
        }
    }
}

// ---------------------------------------------------------------------------------------------
// Last normalization, ReLU, mean over 28 x 28, the linear layer (by an image's last block), and the
// running statistics of the six normalizations.
struct Running {
    float* mean[6];
    float* var[6];
    const float* conv_bias[6];
    long long* tracked[6];
};

__global__ void __launch_bounds__(128) finish_kernel(
    const float4* __restrict__ in, const double* __restrict__ stats, const float* __restrict__ gamma,
    const float* __restrict__ beta, const float* __restrict__ fcw, const float* __restrict__ fcb,
    float* feats, unsigned* counter, float* __restrict__ out, Running run)
{
    __shared__ float s_a[4], s_b[4];
    __shared__ float4 red[4];
    __shared__ unsigned s_last;
    const int tid = threadIdx.x, warp = tid >> 5, lane = tid & 31;
    const int c4 = blockIdx.x, n = blockIdx.y;

    float4 v[7];
    const float4* p = in + (size_t)(n * 64 + c4) * 784;
    #pragma unroll
    for (int i = 0; i < 7; ++i)
        if (tid + 128 * i < 784) v[i] = __ldg(p + tid + 128 * i);
    if (tid < 4)
        bn_coef(stats + 5 * STAT, gamma, beta, c4 * 4 + tid, 1.0 / (8.0 * 56.0 * 56.0), s_a[tid], s_b[tid]);
    __syncthreads();
    float4 s = make_float4(0.f, 0.f, 0.f, 0.f);
    #pragma unroll
    for (int i = 0; i < 7; ++i) {
        if (tid + 128 * i < 784) {
            s.x += fmaxf(fmaf(v[i].x, s_a[0], s_b[0]), 0.f);
            s.y += fmaxf(fmaf(v[i].y, s_a[1], s_b[1]), 0.f);
            s.z += fmaxf(fmaf(v[i].z, s_a[2], s_b[2]), 0.f);
            s.w += fmaxf(fmaf(v[i].w, s_a[3], s_b[3]), 0.f);
        }
    }
    #pragma unroll
    for (int o = 16; o > 0; o >>= 1) {
        s.x += __shfl_xor_sync(0xffffffffu, s.x, o);
        s.y += __shfl_xor_sync(0xffffffffu, s.y, o);
        s.z += __shfl_xor_sync(0xffffffffu, s.z, o);
        s.w += __shfl_xor_sync(0xffffffffu, s.w, o);
    }
    if (lane == 0) red[warp] = s;
    __syncthreads();
    if (tid == 0) {
        const float i784 = 1.f / 784.f;
        float* f = feats + n * 256 + c4 * 4;
        f[0] = (red[0].x + red[1].x + red[2].x + red[3].x) * i784;
        f[1] = (red[0].y + red[1].y + red[2].y + red[3].y) * i784;
        f[2] = (red[0].z + red[1].z + red[2].z + red[3].z) * i784;
        f[3] = (red[0].w + red[1].w + red[2].w + red[3].w) * i784;
        __threadfence();
        s_last = atomicAdd(counter + n, 1u) == 63u;
        __threadfence();
    }
    __syncthreads();
    if (s_last) {
        for (int o = warp; o < 10; o += 4) {
            float d = 0.f;
            #pragma unroll
            for (int i = 0; i < 8; ++i)
                d = fmaf(__ldcg(feats + n * 256 + lane + 32 * i), fcw[o * 256 + lane + 32 * i], d);
            #pragma unroll
            for (int k = 16; k > 0; k >>= 1) d += __shfl_xor_sync(0xffffffffu, d, k);
            if (lane == 0) out[n * 10 + o] = d + fcb[o];
        }
    }

    if (n == 0 && c4 < 6) {
        float* rm = nullptr;
        float* rv = nullptr;
        const float* cb = nullptr;
        long long* nt = nullptr;
        #pragma unroll
        for (int l = 0; l < 6; ++l)
            if (l == c4) { rm = run.mean[l]; rv = run.var[l]; cb = run.conv_bias[l]; nt = run.tracked[l]; }
        const int ch = 64 << (c4 >> 1);
        const int side = 224 >> (c4 >> 1);
        const double cnt = 8.0 * side * side;
        const double* st = stats + c4 * STAT;
        for (int c = tid; c < ch; c += 128) {
            const double mean = st[c] / cnt;
            double var = st[256 + c] / cnt - mean * mean;
            if (var < 0.0) var = 0.0;
            rm[c] = 0.9f * rm[c] + 0.1f * ((float)mean + cb[c]);
            rv[c] = 0.9f * rv[c] + 0.1f * (float)(var * (cnt / (cnt - 1.0)));
        }
        if (tid == 0) *nt += 1;
    }
}

// ---------------------------------------------------------------------------------------------
template <int CIN, int COUT, int H, bool POOL, bool QUAD>
void launch_conv(const torch::Tensor& in, const torch::Tensor& wp, const double* st_in,
                 const torch::Tensor& gamma_in, const torch::Tensor& beta_in, double count_in,
                 const torch::Tensor& gamma_out, const torch::Tensor& out, double* st_out, cudaStream_t stream)
{
    using C = Conv<CIN, COUT, H, POOL, QUAD>;
    auto kernel = conv3x3<CIN, COUT, H, POOL, QUAD>;
    C10_CUDA_CHECK(cudaFuncSetAttribute((const void*)kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, C::SMEM));
    kernel<<<C::GRID, C::THREADS, C::SMEM, stream>>>(
        reinterpret_cast<const float4*>(in.data_ptr<float>()), wp.data_ptr<float>(), st_in,
        gamma_in.data_ptr<float>(), beta_in.data_ptr<float>(), 1.0 / count_in,
        gamma_out.data_ptr<float>(), out.data_ptr<float>(), st_out);
    C10_CUDA_CHECK(cudaGetLastError());
}

// ts: six packed weights, six gammas, six betas, six running means, six running variances,
// six counters, six biases of convolutions, weight and bias of the linear layer.
torch::Tensor regnet_forward(torch::Tensor x, std::vector<torch::Tensor> ts)
{
    TORCH_CHECK(x.is_cuda() && x.is_contiguous() && x.scalar_type() == torch::kFloat32, "x");
    TORCH_CHECK(x.numel() == 8 * 3 * 224 * 224 && ts.size() == 44, "arguments");
    const torch::Tensor* wp = &ts[0];
    const torch::Tensor* ga = &ts[6];
    const torch::Tensor* be = &ts[12];
    cudaStream_t stream = c10::cuda::getCurrentCUDAStream().stream();
    auto opt = x.options();

    const int64_t zero_bytes = 6 * STAT * 8 + 64;
    auto work = torch::empty({zero_bytes + 8 * 256 * 4}, opt.dtype(torch::kUInt8));
    uint8_t* wk = work.data_ptr<uint8_t>();
    double* st = reinterpret_cast<double*>(wk);
    unsigned* counter = reinterpret_cast<unsigned*>(wk + 6 * STAT * 8);
    float* feats = reinterpret_cast<float*>(wk + zero_bytes);
    C10_CUDA_CHECK(cudaMemsetAsync(wk, 0, zero_bytes, stream));

    auto r1 = torch::empty({8LL * 64 * 224 * 224}, opt);
    conv_first<<<dim3(7, 28, 8), 256, 0, stream>>>(
        x.data_ptr<float>(), wp[0].data_ptr<float>(), reinterpret_cast<float4*>(r1.data_ptr<float>()), st);
    C10_CUDA_CHECK(cudaGetLastError());

    const double n0 = 8.0 * 224 * 224, n1 = 8.0 * 112 * 112, n2 = 8.0 * 56 * 56;
    auto p2 = torch::empty({8LL * 64 * 112 * 112}, opt);
    launch_conv<64, 64, 224, true, true>(r1, wp[1], st, ga[0], be[0], n0, ga[1], p2, st + STAT, stream);
    auto r3 = torch::empty({8LL * 128 * 112 * 112}, opt);
    launch_conv<64, 128, 112, false, true>(p2, wp[2], st + STAT, ga[1], be[1], n0, ga[2], r3, st + 2 * STAT, stream);
    auto p4 = torch::empty({8LL * 128 * 56 * 56}, opt);
    launch_conv<128, 128, 112, true, true>(r3, wp[3], st + 2 * STAT, ga[2], be[2], n1, ga[3], p4, st + 3 * STAT, stream);
    auto r5 = torch::empty({8LL * 256 * 56 * 56}, opt);
    launch_conv<128, 256, 56, false, false>(p4, wp[4], st + 3 * STAT, ga[3], be[3], n1, ga[4], r5, st + 4 * STAT, stream);
    auto p6 = torch::empty({8LL * 256 * 28 * 28}, opt);
    launch_conv<256, 256, 56, true, false>(r5, wp[5], st + 4 * STAT, ga[4], be[4], n2, ga[5], p6, st + 5 * STAT, stream);

    Running run;
    for (int l = 0; l < 6; ++l) {
        run.mean[l] = ts[18 + l].data_ptr<float>();
        run.var[l] = ts[24 + l].data_ptr<float>();
        run.tracked[l] = reinterpret_cast<long long*>(ts[30 + l].data_ptr<int64_t>());
        run.conv_bias[l] = ts[36 + l].data_ptr<float>();
    }
    auto out = torch::empty({8, 10}, opt);
    finish_kernel<<<dim3(64, 8), 128, 0, stream>>>(
        reinterpret_cast<const float4*>(p6.data_ptr<float>()), st, ga[5].data_ptr<float>(), be[5].data_ptr<float>(),
        ts[42].data_ptr<float>(), ts[43].data_ptr<float>(), feats, counter, out.data_ptr<float>(), run);
    C10_CUDA_CHECK(cudaGetLastError());
    return out;
}
'''

cpp_src = r'''
#include <vector>
torch::Tensor regnet_forward(torch::Tensor x, std::vector<torch::Tensor> ts);
'''

regnet_ext = load_inline(
    name="regnet_fused_tf32_n128",
    cpp_sources=cpp_src,
    cuda_sources=cuda_src,
    functions=["regnet_forward"],
    extra_cuda_cflags=["-O3", "-gencode=arch=compute_90a,code=sm_90a"],
)


def round_tf32(w):
    # To nearest, ties away from zero, 10 bits of mantissa.
    return ((w.contiguous().view(torch.int32) + 0x1000) & -8192).view(torch.float32)


def pack_first(w):
    # [64, 3, 3 (row), 3 (column)] -> [channel, column, row, 64]
    return w.detach().permute(1, 3, 2, 0).contiguous()


def pack_conv(w):
    # [COUT, CIN, 3, 3] -> [COUT / nt, CIN / 8, tap, 2, nt, 4], nt output channels a tile
    co, ci = w.shape[0], w.shape[1]
    nt = 128 if co >= 128 else 64
    r = round_tf32(w.detach()).reshape(co // nt, nt, ci // 8, 2, 4, 9)
    return r.permute(0, 2, 5, 3, 1, 4).contiguous()


class ModelNew(nn.Module):
    def __init__(self, input_channels, stages, block_widths, output_classes):
        super(ModelNew, self).__init__()
        self.stages = stages
        self.block_widths = block_widths
        layers = []
        current_channels = input_channels
        for i in range(stages):
            layers.append(self._make_stage(current_channels, block_widths[i]))
            current_channels = block_widths[i]
        self.feature_extractor = nn.Sequential(*layers)
        self.fc = nn.Linear(block_widths[-1], output_classes)

        convs = self._convs()
        with torch.no_grad():
            for i, conv in enumerate(convs):
                packed = pack_first(conv.weight) if i == 0 else pack_conv(conv.weight)
                self.register_buffer("packed%d" % i, packed, persistent=False)
        self._args = None

    def _make_stage(self, in_channels, out_channels):
        return nn.Sequential(
            nn.Conv2d(in_channels, out_channels, kernel_size=3, padding=1),
            nn.BatchNorm2d(out_channels),
            nn.ReLU(),
            nn.Conv2d(out_channels, out_channels, kernel_size=3, padding=1),
            nn.BatchNorm2d(out_channels),
            nn.ReLU(),
            nn.MaxPool2d(kernel_size=2, stride=2)
        )

    def _convs(self):
        return [stage[k] for stage in self.feature_extractor for k in (0, 3)]

    def _norms(self):
        return [stage[k] for stage in self.feature_extractor for k in (1, 4)]

    def _collect(self):
        convs, norms = self._convs(), self._norms()
        args = [getattr(self, "packed%d" % i) for i in range(6)]
        args += [b.weight.detach() for b in norms]
        args += [b.bias.detach() for b in norms]
        args += [b.running_mean for b in norms]
        args += [b.running_var for b in norms]
        args += [b.num_batches_tracked for b in norms]
        args += [c.bias.detach() for c in convs]
        args += [self.fc.weight.detach(), self.fc.bias.detach()]
        return args

    def forward(self, x):
        args = self._args
        if args is None or args[0].device != x.device:
            # Only the tensors of the module itself are kept: weights and buffers.
            args = self._collect()
            self._args = args
        return regnet_ext.regnet_forward(x, args)
