import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.cpp_extension import load_inline

cuda_source = r"""
#include <cuda.h>
#include <cuda_runtime.h>
#include <cstdint>
#include <torch/types.h>
#include <c10/cuda/CUDAStream.h>
#include <c10/cuda/CUDAException.h>

#define F4(d, i) "+f"(d[(i)]), "+f"(d[(i) + 1]), "+f"(d[(i) + 2]), "+f"(d[(i) + 3])
#define F16(d, i) F4(d, (i)), F4(d, (i) + 4), F4(d, (i) + 8), F4(d, (i) + 12)

__device__ __forceinline__ uint32_t smem_u32(const void* p) {
  return (uint32_t)__cvta_generic_to_shared(p);
}
__device__ __forceinline__ void mbar_init(uint32_t bar, uint32_t count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(bar), "r"(count) : "memory");
}
__device__ __forceinline__ void mbar_wait(uint32_t bar, uint32_t parity) {
  uint32_t done;
  do {
    asm volatile(
        "{\n"
        ".reg .pred p;\n"
        "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
        "selp.u32 %0, 1, 0, p;\n"
        "}\n"
        : "=r"(done)
        : "r"(bar), "r"(parity)
        : "memory");
  } while (!done);
}
__device__ __forceinline__ void wgmma_fence() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void wgmma_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
template <int N>
__device__ __forceinline__ void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
}
template <int N>
__device__ __forceinline__ void fence_regs(float (&d)[N]) {
#pragma unroll
  for (int i = 0; i < N; ++i) asm volatile("" : "+f"(d[i])::"memory");
}
__device__ __forceinline__ void fence_async_proxy() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
__device__ __forceinline__ void named_sync(int id) {
  asm volatile("bar.sync %0, 128;" ::"r"(id) : "memory");
}
__device__ __forceinline__ uint32_t pack_bf16(float lo, float hi) {
  uint32_t r;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(hi), "f"(lo));
  return r;
}

__device__ __forceinline__ void mbar_arrive(uint32_t bar) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(bar) : "memory");
}

__device__ __forceinline__ void wgmma_n96(float (&d)[48], uint64_t da, uint64_t db, int acc) {
  asm volatile(
    "{\n"
    ".reg .pred p;\n"
    "setp.ne.b32 p, %50, 0;\n"
    "wgmma.mma_async.sync.aligned.m64n96k16.f32.bf16.bf16 {"
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
    "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
    "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47"
    "}, %48, %49, p, 1, 1, 0, 0;\n"
    "}\n"
    : F16(d, 0), F16(d, 16), F16(d, 32)
    : "l"(da), "l"(db), "r"(acc));
}

#include <cuda_bf16.h>

// The convolution as a 3 x 3 convolution of stride 1 over blocks of 4 x 4 pixels (57 x 57 blocks of the
// padded image, 48 channels). A cell of 16 bytes holds 2 rows x 4 columns of one channel; a plane holds
// the cells of one channel and row pair, so that a shift by (by, bx) is a shift of the start address.
constexpr int BLK = 57;
constexpr int OUTW = 55;
constexpr int OUTP = OUTW * OUTW;
constexpr int FILT = 96;
constexpr int IMG = 224;
constexpr int BAND_TILES = 7;
constexpr int BAND = BAND_TILES * 64;
constexpr int BANDS = 7;
constexpr int ITEMS = 256 * BANDS;
constexpr int CELLS = BAND + 2 * BLK + 2;
constexpr int GRID = 132;
constexpr uint32_t PLANE = CELLS * 16;
constexpr uint32_t W_BYTES = 27 * 2 * FILT * 16;
constexpr uint32_t IN_BYTES = 6 * PLANE;
constexpr uint32_t OFF_W = 0;
constexpr uint32_t OFF_IN = W_BYTES;
constexpr uint32_t OFF_ST = OFF_IN + 2 * IN_BYTES;
constexpr uint32_t OFF_BAR = OFF_ST + 3 * 12288;
constexpr uint32_t OFF_BIAS = OFF_BAR + 64;
constexpr uint32_t SMEM_BYTES = OFF_BIAS + FILT * 4 + 128;

// Descriptor of a tile without swizzle, K contiguous; offsets in bytes.
__device__ __forceinline__ uint64_t make_desc(uint32_t addr, uint32_t lbo, uint32_t sbo) {
  return (uint64_t)((addr & 0x3FFFFu) >> 4) | ((uint64_t)(lbo >> 4) << 16) | ((uint64_t)(sbo >> 4) << 32);
}
// Two values of 16 bits packed into one register. No memory clobber: volatile keeps the order among asm statements.
__device__ __forceinline__ uint32_t ld_shared_pair(uint32_t lo_addr, uint32_t hi_addr) {
  uint32_t v;
  asm volatile(
      "{\n"
      ".reg .b16 lo, hi;\n"
      "ld.shared.b16 lo, [%1];\n"
      "ld.shared.b16 hi, [%2];\n"
      "mov.b32 %0, {lo, hi};\n"
      "}\n"
      : "=r"(v)
      : "r"(lo_addr), "r"(hi_addr));
  return v;
}
__device__ __forceinline__ void st_global_b32_if(void* ptr, uint32_t v, int pred) {
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "setp.ne.b32 p, %2, 0;\n"
      "@p st.global.b32 [%0], %1;\n"
      "}\n" ::"l"(ptr), "r"(v), "r"(pred)
      : "memory");
}
__device__ __forceinline__ void st_global_b16_if(void* ptr, uint16_t v, int pred) {
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "setp.ne.b32 p, %2, 0;\n"
      "@p st.global.b16 [%0], %1;\n"
      "}\n" ::"l"(ptr), "h"(v), "r"(pred)
      : "memory");
}

__global__ void __launch_bounds__(512, 1)
conv_kernel(const __nv_bfloat16* __restrict__ x, const uint4* __restrict__ wp,
            const __nv_bfloat16* __restrict__ bias, __nv_bfloat16* __restrict__ out) {
  extern __shared__ uint8_t smem_raw[];
  const uint32_t raw = smem_u32(smem_raw);
  const uint32_t base = (raw + 127u) & ~127u;
  uint8_t* sm = smem_raw + (base - raw);
  const uint32_t full = base + OFF_BAR;
  const uint32_t empty = full + 16;
  const int tid = threadIdx.x;
  const int wg = tid >> 7;

  if (tid == 0) {
    for (int i = 0; i < 2; ++i) {
      mbar_init(full + 8 * i, 128);
      mbar_init(empty + 8 * i, 12);
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  {
    uint4* dst = reinterpret_cast<uint4*>(sm + OFF_W);
    for (int i = tid; i < (int)(W_BYTES / 16); i += 512) dst[i] = wp[i];
    float* sb = reinterpret_cast<float*>(sm + OFF_BIAS);
    if (tid < FILT) sb[tid] = __bfloat162float(bias[tid]);
  }
  fence_async_proxy();
  __syncthreads();

  if (wg == 3) {
    const int t = tid & 127;
    int it = 0;
    for (int item = blockIdx.x; item < ITEMS; item += GRID, ++it) {
      const int n = item / BANDS;
      const int p0 = (item - n * BANDS) * BAND;
      const int b = it & 1;
      mbar_wait(empty + 8 * b, ((it >> 1) & 1) ^ 1);
      const uint32_t buf = base + OFF_IN + b * IN_BYTES;
      const __nv_bfloat16* xn = x + (size_t)n * 3 * IMG * IMG;
      for (int task = t; task < 2 * CELLS; task += 128) {
        const int cell = task >> 1;
        const int half = task & 1;
        const int p = p0 + cell;
        const int by = p / BLK;
        const int bx = p - by * BLK;
        const int col = 4 * bx - 2 + 2 * half;
        const bool col_ok = col >= 0 && col < IMG;
        const uint32_t dst = buf + cell * 16 + half * 4;
#pragma unroll
        for (int d = 0; d < 4; ++d) {
          const int row = 4 * by - 2 + d;
          const bool ok = col_ok && row >= 0 && row < IMG;
          const int off = ok ? row * IMG + col : 0;
          const int bytes = ok ? 4 : 0;
#pragma unroll
          for (int c = 0; c < 3; ++c) {
            const __nv_bfloat16* src = xn + off + c * IMG * IMG;
            asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(
                             dst + (uint32_t)(c * 2 + (d >> 1)) * PLANE + (uint32_t)(d & 1) * 8),
                         "l"(src), "r"(bytes)
                         : "memory");
          }
        }
      }
      asm volatile("cp.async.wait_all;" ::: "memory");
      fence_async_proxy();
      mbar_arrive(full + 8 * b);
    }
  } else {
    const int wtid = tid & 127;
    const int warp = wtid >> 5;
    const int lane = tid & 31;
    const uint32_t stage = base + OFF_ST + wg * 12288;
    const float* sb = reinterpret_cast<const float*>(sm + OFF_BIAS) + (lane & 3) * 2;
    const int mat = lane >> 3;
    const int mrow = lane & 7;
    const uint32_t st_addr = stage + ((mat >> 1) * 8 + mrow) * 128 + (((warp * 2 + (mat & 1)) ^ mrow) << 4);
    const uint64_t dw = make_desc(base + OFF_W, FILT * 16, 128);
    float d[48];
#pragma unroll
    for (int i = 0; i < 48; ++i) d[i] = 0.f;

    int it = 0;
    for (int item = blockIdx.x; item < ITEMS; item += GRID, ++it) {
      const int n = item / BANDS;
      const int pband = (item - n * BANDS) * BAND;
      const int b = it & 1;
      mbar_wait(full + 8 * b, (it >> 1) & 1);
      const uint32_t buf = base + OFF_IN + b * IN_BYTES;
      // Tiles go round the three warpgroups, across bands as well.
      for (int j = (wg + 3 - it % 3) % 3; j < BAND_TILES; j += 3) {
        const uint64_t da = make_desc(buf + j * 1024, PLANE, 128);
        wgmma_fence();
#pragma unroll
        for (int ks = 0; ks < 27; ++ks) {
          const int c = ks / 9;
          const int by = (ks / 3) % 3;
          const int bx = ks % 3;
          wgmma_n96(d, da + (uint64_t)(c * 2 * CELLS + by * BLK + bx), dw + (uint64_t)(ks * 2 * FILT), ks != 0 ? 1 : 0);
        }
        wgmma_commit();
        wgmma_wait<0>();
        fence_regs(d);
        if (j + 3 >= BAND_TILES && lane == 0) mbar_arrive(empty + 8 * b);

        // Transpose through shared memory: a row of 64 pixels for each filter.
        named_sync(1 + wg);
#pragma unroll
        for (int i = 0; i < 6; ++i) {
          const float2 ba = *reinterpret_cast<const float2*>(sb + 16 * i);
          const float2 bb = *reinterpret_cast<const float2*>(sb + 16 * i + 8);
          const uint32_t r0 = pack_bf16(d[8 * i] + ba.x, d[8 * i + 1] + ba.y);
          const uint32_t r1 = pack_bf16(d[8 * i + 2] + ba.x, d[8 * i + 3] + ba.y);
          const uint32_t r2 = pack_bf16(d[8 * i + 4] + bb.x, d[8 * i + 5] + bb.y);
          const uint32_t r3 = pack_bf16(d[8 * i + 6] + bb.x, d[8 * i + 7] + bb.y);
          asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};"
                       ::"r"(st_addr + i * 2048), "r"(r0), "r"(r1), "r"(r2), "r"(r3)
                       : "memory");
        }
        named_sync(1 + wg);

        // The valid pixels of the tile are contiguous in the output; pairs start at even addresses.
        const int p0 = pband + j * 64;
        const int y0 = p0 / BLK;
        const int x0 = p0 - y0 * BLK;
        const int q0 = y0 * OUTW + (x0 < OUTW ? x0 : OUTW);
        const int e0 = 2 * lane - ((warp + q0) & 1);
        const int qa = q0 + e0;
        const int qb = qa + 1;
        int ra = qa + 2 * (qa / OUTW) - p0;
        int rb = qb + 2 * (qb / OUTW) - p0;
        const bool va = e0 >= 0 && ra < 64 && qa < OUTP;
        const bool vb = rb < 64 && qb < OUTP;
        if (!va) ra = 0;
        if (!vb) rb = 0;
        const uint32_t row_base = stage + warp * 128;
        const uint32_t oa = (uint32_t)(((ra >> 3) ^ warp) << 4) + (ra & 7) * 2;
        const uint32_t ob = (uint32_t)(((rb >> 3) ^ warp) << 4) + (rb & 7) * 2;
        __nv_bfloat16* dst = out + ((size_t)n * FILT + warp) * OUTP + qa;
        const int both = (va && vb) ? 1 : 0;
        const int single = (va != vb) ? 1 : 0;
        const uint32_t shift = va ? 0u : 16u;
        __nv_bfloat16* dst1 = dst + (va ? 0 : 1);
        const uint32_t a_even = row_base + oa;
        const uint32_t a_odd = row_base + (oa ^ 64u);
        const uint32_t b_even = row_base + ob;
        const uint32_t b_odd = row_base + (ob ^ 64u);
        // Two batches of 12 filters: all loads, then all stores, predicated.
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          uint32_t v[12];
#pragma unroll
          for (int i = 0; i < 12; ++i) {
            const int k = h * 12 + i;
            v[i] = ld_shared_pair(((k & 1) ? a_odd : a_even) + k * 512, ((k & 1) ? b_odd : b_even) + k * 512);
          }
#pragma unroll
          for (int i = 0; i < 12; ++i) {
            const int k = h * 12 + i;
            st_global_b32_if(dst + k * 4 * OUTP, v[i], both);
            st_global_b16_if(dst1 + k * 4 * OUTP, (uint16_t)(v[i] >> shift), single);
          }
        }
        __syncwarp();
      }
    }
  }
}

torch::Tensor conv_forward(torch::Tensor x, torch::Tensor packed, torch::Tensor bias) {
  TORCH_CHECK(x.is_cuda() && packed.is_cuda() && bias.is_cuda(), "CUDA tensors");
  TORCH_CHECK(x.is_contiguous() && packed.is_contiguous() && bias.is_contiguous(), "contiguous tensors");
  TORCH_CHECK(x.scalar_type() == torch::kBFloat16 && packed.scalar_type() == torch::kBFloat16 &&
              bias.scalar_type() == torch::kBFloat16, "bfloat16");
  TORCH_CHECK(x.numel() == (int64_t)256 * 3 * IMG * IMG && packed.numel() * 2 == (int64_t)W_BYTES, "shape");
  auto out = torch::empty({256, FILT, OUTW, OUTW}, x.options());
  static bool ready = false;
  if (!ready) {
    C10_CUDA_CHECK(cudaFuncSetAttribute(conv_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, SMEM_BYTES));
    ready = true;
  }
  conv_kernel<<<GRID, 512, SMEM_BYTES, c10::cuda::getCurrentCUDAStream()>>>(
      reinterpret_cast<const __nv_bfloat16*>(x.data_ptr()), reinterpret_cast<const uint4*>(packed.data_ptr()),
      reinterpret_cast<const __nv_bfloat16*>(bias.data_ptr()), reinterpret_cast<__nv_bfloat16*>(out.data_ptr()));
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return out;
}
"""

cpp_source = r"""
torch::Tensor conv_forward(torch::Tensor x, torch::Tensor packed, torch::Tensor bias);
"""

module = load_inline(
    name="conv_alexnet_sm90a_s2d_pe",
    cpp_sources=cpp_source,
    cuda_sources=cuda_source,
    functions=["conv_forward"],
    extra_cuda_cflags=["-O3", "-gencode=arch=compute_90a,code=sm_90a"],
    verbose=False,
)


class ModelNew(nn.Module):
    def __init__(self, channels, filters, kernel, stride, padding):
        super().__init__()
        self.conv = nn.Conv2d(channels, filters, kernel, stride=stride, padding=padding)
        # Kernel rows and columns are padded from 11 to 12 and laid out as
        # (channel, block row, block column, row pair, filter, row of the pair, column).
        w = F.pad(self.conv.weight.detach(), (0, 1, 0, 1))
        w = w.reshape(96, 3, 3, 2, 2, 3, 4).permute(1, 2, 5, 3, 0, 4, 6).contiguous()
        self.register_buffer("packed", w, persistent=False)

    def forward(self, x):
        return module.conv_forward(x, self.packed, self.conv.bias)
