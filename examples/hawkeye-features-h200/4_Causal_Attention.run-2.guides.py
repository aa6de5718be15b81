import torch
import torch.nn as nn
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

__device__ __forceinline__ void mbar_expect(uint32_t bar, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(bar), "r"(bytes) : "memory");
}
__device__ __forceinline__ void tma_load(uint32_t dst, const CUtensorMap* map, uint32_t bar, int x, int y) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];"
      ::"r"(dst), "l"(map), "r"(bar), "r"(x), "r"(y)
      : "memory");
}
__device__ __forceinline__ void tma_store(const CUtensorMap* map, uint32_t src, int x, int y) {
  asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%2, %3}], [%1];"
               ::"l"(map), "r"(src), "r"(x), "r"(y)
               : "memory");
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}
// Descriptor of a tile in 128-byte swizzle; offsets in bytes.
__device__ __forceinline__ uint64_t make_desc(uint32_t addr, uint32_t lbo, uint32_t sbo) {
  return (uint64_t)((addr & 0x3FFFFu) >> 4) | ((uint64_t)(lbo >> 4) << 16) |
         ((uint64_t)(sbo >> 4) << 32) | ((uint64_t)1 << 62);
}
__device__ __forceinline__ void st_shared_u32(uint32_t addr, uint32_t v) {
  asm volatile("st.shared.u32 [%0], %1;" ::"r"(addr), "r"(v) : "memory");
}

__device__ __forceinline__ void wgmma_qk(float (&d)[64], uint64_t da, uint64_t db, int acc) {
  asm volatile(
    "{\n"
    ".reg .pred p;\n"
    "setp.ne.b32 p, %66, 0;\n"
    "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {"
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
    "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
    "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
    "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
    "}, %64, %65, p, 1, 1, 0, 0;\n"
    "}\n"
    : F16(d, 0), F16(d, 16), F16(d, 32), F16(d, 48)
    : "l"(da), "l"(db), "r"(acc));
}

__device__ __forceinline__ void wgmma_pv(float (&d)[32], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint64_t db) {
  asm volatile(
    "{\n"
    ".reg .pred p;\n"
    "setp.ne.b32 p, %37, 0;\n"
    "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {"
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
    "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
    "}, {%32, %33, %34, %35}, %36, p, 1, 1, 1;\n"
    "}\n"
    : F16(d, 0), F16(d, 16)
    : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "l"(db), "r"(1));
}

constexpr int SEQ = 4096;
constexpr int HEADS = 32;
constexpr int TILES = 22;
constexpr int ITEMS = TILES * HEADS;
constexpr int GRID = 132;
constexpr int ST = 4;
constexpr uint32_t OFF_Q = 0;
constexpr uint32_t OFF_K = 2 * 24576;
constexpr uint32_t OFF_V = OFF_K + ST * 16384;
constexpr uint32_t OFF_O = OFF_V + ST * 16384;
constexpr uint32_t OFF_BAR = OFF_O + 3 * 8192;
constexpr uint32_t SMEM_BYTES = OFF_BAR + 256 + 1024;
constexpr float SCALE_LOG2 = 0.125f * 1.4426950408889634f;

__device__ __forceinline__ float ex2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// Longest tiles first, in a snake over the blocks, so that all blocks get about the same work.
__device__ __forceinline__ int item_of(int r) {
  return r * GRID + ((r & 1) ? GRID - 1 - (int)blockIdx.x : (int)blockIdx.x);
}

// Maxima of the scores that this thread holds of its two rows.
__device__ __forceinline__ void thread_max(const float (&s)[64], float& m0, float& m1) {
  float a0 = s[0], a1 = s[1], b0 = s[2], b1 = s[3];
#pragma unroll
  for (int i = 1; i < 16; ++i) {
    a0 = fmaxf(a0, s[4 * i]);
    a1 = fmaxf(a1, s[4 * i + 1]);
    b0 = fmaxf(b0, s[4 * i + 2]);
    b1 = fmaxf(b1, s[4 * i + 3]);
  }
  m0 = fmaxf(a0, a1);
  m1 = fmaxf(b0, b1);
}

// Maxima over the four threads that share a row.
__device__ __forceinline__ void quad_max(float& m0, float& m1) {
  m0 = fmaxf(m0, __shfl_xor_sync(0xffffffffu, m0, 1));
  m1 = fmaxf(m1, __shfl_xor_sync(0xffffffffu, m1, 1));
  m0 = fmaxf(m0, __shfl_xor_sync(0xffffffffu, m0, 2));
  m1 = fmaxf(m1, __shfl_xor_sync(0xffffffffu, m1, 2));
}

__device__ __forceinline__ void exp_sum(float (&s)[64], float m0, float m1, float& l0, float& l1) {
  const float n0 = -m0 * SCALE_LOG2;
  const float n1 = -m1 * SCALE_LOG2;
  float a0 = 0.f, a1 = 0.f, b0 = 0.f, b1 = 0.f;
#pragma unroll
  for (int i = 0; i < 16; ++i) {
    s[4 * i] = ex2(fmaf(s[4 * i], SCALE_LOG2, n0));
    s[4 * i + 1] = ex2(fmaf(s[4 * i + 1], SCALE_LOG2, n0));
    s[4 * i + 2] = ex2(fmaf(s[4 * i + 2], SCALE_LOG2, n1));
    s[4 * i + 3] = ex2(fmaf(s[4 * i + 3], SCALE_LOG2, n1));
    a0 += s[4 * i];
    a1 += s[4 * i + 1];
    b0 += s[4 * i + 2];
    b1 += s[4 * i + 3];
  }
  l0 += a0 + a1;
  l1 += b0 + b1;
}

__device__ __forceinline__ void pack_p(const float (&s)[64], uint32_t (&p)[32]) {
#pragma unroll
  for (int i = 0; i < 32; ++i) p[i] = pack_bf16(s[2 * i], s[2 * i + 1]);
}

__device__ __forceinline__ void issue_qk(float (&s)[64], uint64_t dq, uint64_t dk) {
#pragma unroll
  for (int kk = 0; kk < 4; ++kk) wgmma_qk(s, dq + kk * 2, dk + kk * 2, kk != 0 ? 1 : 0);
}

__device__ __forceinline__ void issue_pv(float (&o)[32], const uint32_t (&p)[32], uint64_t dv) {
#pragma unroll
  for (int kk = 0; kk < 8; ++kk)
    wgmma_pv(o, p[4 * kk], p[4 * kk + 1], p[4 * kk + 2], p[4 * kk + 3], dv + kk * 128);
}

// Three consumer warpgroups of 64 query rows each and one producer. Tile i covers the rows
// 192 i - 128 .. 192 i + 63; in tile 0 only the last warpgroup has rows.
__global__ void __launch_bounds__(512, 1)
attention_kernel(const __grid_constant__ CUtensorMap map_q, const __grid_constant__ CUtensorMap map_k,
                 const __grid_constant__ CUtensorMap map_v, const __grid_constant__ CUtensorMap map_o) {
  extern __shared__ uint8_t smem_raw[];
  const uint32_t base = (smem_u32(smem_raw) + 1023u) & ~1023u;
  const uint32_t qfull = base + OFF_BAR;
  const uint32_t qempty = qfull + 16;
  const uint32_t kfull = qempty + 16;
  const uint32_t kempty = kfull + 8 * ST;
  const uint32_t vfull = kempty + 8 * ST;
  const uint32_t vempty = vfull + 8 * ST;
  const int tid = threadIdx.x;
  const int wg = tid >> 7;

  if (tid == 0) {
    for (int i = 0; i < 2; ++i) {
      mbar_init(qfull + 8 * i, 1);
      mbar_init(qempty + 8 * i, 12);
    }
    for (int i = 0; i < ST; ++i) {
      mbar_init(kfull + 8 * i, 1);
      mbar_init(kempty + 8 * i, 12);
      mbar_init(vfull + 8 * i, 1);
      mbar_init(vempty + 8 * i, 12);
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    fence_async_proxy();
  }
  __syncthreads();

  if (wg == 0) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 32;");
    if (tid == 0) {
      int s = 0;
      uint32_t ph = 0;
      for (int r = 0;; ++r) {
        const int item = item_of(r);
        if (item >= ITEMS) break;
        const int tile = TILES - 1 - (item >> 5);
        const int hrow = (item & 31) * SEQ;
        const int qb = r & 1;
        mbar_wait(qempty + 8 * qb, ((r >> 1) & 1) ^ 1);
        const int first = tile == 0 ? 2 : 0;
        mbar_expect(qfull + 8 * qb, (3 - first) * 8192);
        for (int w = first; w < 3; ++w)
          tma_load(base + OFF_Q + qb * 24576 + w * 8192, &map_q, qfull + 8 * qb, 0, hrow + 192 * tile - 128 + 64 * w);
        for (int nb = (192 * tile + 63) >> 7; nb >= 0; --nb) {
          mbar_wait(kempty + 8 * s, ph ^ 1);
          mbar_expect(kfull + 8 * s, 16384);
          tma_load(base + OFF_K + s * 16384, &map_k, kfull + 8 * s, 0, hrow + nb * 128);
          mbar_wait(vempty + 8 * s, ph ^ 1);
          mbar_expect(vfull + 8 * s, 16384);
          tma_load(base + OFF_V + s * 16384, &map_v, vfull + 8 * s, 0, hrow + nb * 128);
          if (++s == ST) { s = 0; ph ^= 1; }
        }
      }
    }
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 160;");
    const int w = wg - 1;
    const int wtid = tid & 127;
    const int warp = wtid >> 5;
    const int lane = tid & 31;
    const int row = warp * 16 + (lane >> 2);
    const uint32_t obuf = base + OFF_O + w * 8192;
    int s = 0;
    uint32_t ph = 0;
    float sc[64];
    float o[32];
    uint32_t p[32];
#pragma unroll
    for (int i = 0; i < 64; ++i) sc[i] = 0.f;

    for (int r = 0;; ++r) {
      const int item = item_of(r);
      if (item >= ITEMS) break;
      const int tile = TILES - 1 - (item >> 5);
      const int hrow = (item & 31) * SEQ;
      const int qb = r & 1;
      const int m0 = 192 * tile - 128 + 64 * w;
      const int my_last = m0 >= 0 ? (m0 + 63) >> 7 : -1;
      int nb = (192 * tile + 63) >> 7;

      mbar_wait(qfull + 8 * qb, (r >> 1) & 1);
      // Blocks above this warpgroup's diagonal.
      for (; nb > my_last; --nb) {
        mbar_wait(kfull + 8 * s, ph);
        mbar_wait(vfull + 8 * s, ph);
        __syncwarp();
        if (lane == 0) {
          mbar_arrive(kempty + 8 * s);
          mbar_arrive(vempty + 8 * s);
        }
        if (++s == ST) { s = 0; ph ^= 1; }
      }
      if (my_last < 0) {
        __syncwarp();
        if (lane == 0) mbar_arrive(qempty + 8 * qb);
        continue;
      }

      const uint64_t dq = make_desc(base + OFF_Q + qb * 24576 + w * 8192, 16, 1024);
      float mx0, mx1, l0 = 0.f, l1 = 0.f;
#pragma unroll
      for (int i = 0; i < 32; ++i) o[i] = 0.f;

      // The diagonal block.
      mbar_wait(kfull + 8 * s, ph);
      wgmma_fence();
      issue_qk(sc, dq, make_desc(base + OFF_K + s * 16384, 16, 1024));
      wgmma_commit();
      wgmma_wait<0>();
      fence_regs(sc);
      if (lane == 0) mbar_arrive(kempty + 8 * s);
      {
        const int lim0 = m0 + row - nb * 128 - (lane & 3) * 2;
        const int lim1 = lim0 + 8;
        const float ninf = __int_as_float(0xff800000);
#pragma unroll
        for (int i = 0; i < 16; ++i) {
          if (8 * i > lim0) sc[4 * i] = ninf;
          if (8 * i + 1 > lim0) sc[4 * i + 1] = ninf;
          if (8 * i > lim1) sc[4 * i + 2] = ninf;
          if (8 * i + 1 > lim1) sc[4 * i + 3] = ninf;
        }
      }
      thread_max(sc, mx0, mx1);
      quad_max(mx0, mx1);
      exp_sum(sc, mx0, mx1, l0, l1);
      pack_p(sc, p);

      // The scores of the next block are computed beside the product of the last with V.
      for (; nb > 0; --nb) {
        const int sv = s;
        const uint32_t pv = ph;
        if (++s == ST) { s = 0; ph ^= 1; }
        mbar_wait(kfull + 8 * s, ph);
        wgmma_fence();
        issue_qk(sc, dq, make_desc(base + OFF_K + s * 16384, 16, 1024));
        wgmma_commit();
        mbar_wait(vfull + 8 * sv, pv);
        issue_pv(o, p, make_desc(base + OFF_V + sv * 16384, 16384, 1024));
        wgmma_commit();
        wgmma_wait<1>();
        fence_regs(sc);
        if (lane == 0) mbar_arrive(kempty + 8 * s);
        float c0, c1;
        thread_max(sc, c0, c1);
        // The old maximum serves as long as no score exceeds it by more than 8 in log2: l and o share it.
        const bool rescale =
            __any_sync(0xffffffffu, (c0 - mx0) * SCALE_LOG2 > 8.f || (c1 - mx1) * SCALE_LOG2 > 8.f) != 0;
        float al0 = 1.f, al1 = 1.f;
        if (rescale) {
          quad_max(c0, c1);
          c0 = fmaxf(c0, mx0);
          c1 = fmaxf(c1, mx1);
          al0 = ex2((mx0 - c0) * SCALE_LOG2);
          al1 = ex2((mx1 - c1) * SCALE_LOG2);
          mx0 = c0;
          mx1 = c1;
          l0 *= al0;
          l1 *= al1;
        }
        exp_sum(sc, mx0, mx1, l0, l1);
        wgmma_wait<0>();
        fence_regs(o);
        if (lane == 0) mbar_arrive(vempty + 8 * sv);
        if (rescale) {
#pragma unroll
          for (int i = 0; i < 8; ++i) {
            o[4 * i] *= al0;
            o[4 * i + 1] *= al0;
            o[4 * i + 2] *= al1;
            o[4 * i + 3] *= al1;
          }
        }
        pack_p(sc, p);
      }
      if (lane == 0) mbar_arrive(qempty + 8 * qb);

      mbar_wait(vfull + 8 * s, ph);
      wgmma_fence();
      issue_pv(o, p, make_desc(base + OFF_V + s * 16384, 16384, 1024));
      wgmma_commit();
      l0 += __shfl_xor_sync(0xffffffffu, l0, 1);
      l1 += __shfl_xor_sync(0xffffffffu, l1, 1);
      l0 += __shfl_xor_sync(0xffffffffu, l0, 2);
      l1 += __shfl_xor_sync(0xffffffffu, l1, 2);
      const float i0 = 1.f / l0;
      const float i1 = 1.f / l1;
      wgmma_wait<0>();
      fence_regs(o);
      if (lane == 0) mbar_arrive(vempty + 8 * s);
      if (++s == ST) { s = 0; ph ^= 1; }

      if (wtid == 0) asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
      named_sync(1 + w);
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        const uint32_t addr = obuf + row * 128 + ((i ^ (row & 7)) << 4) + (lane & 3) * 4;
        st_shared_u32(addr, pack_bf16(o[4 * i] * i0, o[4 * i + 1] * i0));
        st_shared_u32(addr + 1024, pack_bf16(o[4 * i + 2] * i1, o[4 * i + 3] * i1));
      }
      fence_async_proxy();
      named_sync(1 + w);
      if (wtid == 0) tma_store(&map_o, obuf, 0, hrow + m0);
    }
    if (wtid == 0) asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
  }
}

typedef decltype(&cuTensorMapEncodeTiled) EncodeFn;

static EncodeFn get_encode() {
  static EncodeFn fn = nullptr;
  if (!fn) {
    void* p = nullptr;
    cudaDriverEntryPointQueryResult st;
    C10_CUDA_CHECK(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &p, 12000, cudaEnableDefault, &st));
    TORCH_CHECK(st == cudaDriverEntryPointSuccess && p != nullptr, "cuTensorMapEncodeTiled not found");
    fn = (EncodeFn)p;
  }
  return fn;
}

// A row-major bfloat16 matrix (rows x cols), boxes of box_rows x 64, 128-byte swizzle.
static void encode(CUtensorMap* map, void* ptr, uint64_t rows, uint64_t cols, uint32_t box_rows) {
  cuuint64_t dims[2] = {cols, rows};
  cuuint64_t strides[1] = {cols * 2};
  cuuint32_t box[2] = {64, box_rows};
  cuuint32_t es[2] = {1, 1};
  CUresult r = get_encode()(map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, ptr, dims, strides, box, es,
                            CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                            CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  TORCH_CHECK(r == CUDA_SUCCESS, "cuTensorMapEncodeTiled failed");
}

torch::Tensor causal_attention(torch::Tensor q, torch::Tensor k, torch::Tensor v) {
  TORCH_CHECK(q.is_cuda() && k.is_cuda() && v.is_cuda(), "CUDA tensors");
  TORCH_CHECK(q.is_contiguous() && k.is_contiguous() && v.is_contiguous(), "contiguous tensors");
  TORCH_CHECK(q.scalar_type() == torch::kBFloat16 && k.scalar_type() == torch::kBFloat16 &&
              v.scalar_type() == torch::kBFloat16, "bfloat16");
  const int64_t rows = (int64_t)HEADS * SEQ;
  TORCH_CHECK(q.numel() == rows * 64 && k.numel() == rows * 64 && v.numel() == rows * 64, "shape");
  auto out = torch::empty_like(q);
  static CUtensorMap mq, mk, mv, mo;
  static void *pq = nullptr, *pk = nullptr, *pv = nullptr, *po = nullptr;
  static bool ready = false;
  if (!ready) {
    C10_CUDA_CHECK(cudaFuncSetAttribute(attention_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, SMEM_BYTES));
    ready = true;
  }
  if (pq != q.data_ptr()) { encode(&mq, q.data_ptr(), rows, 64, 64); pq = q.data_ptr(); }
  if (pk != k.data_ptr()) { encode(&mk, k.data_ptr(), rows, 64, 128); pk = k.data_ptr(); }
  if (pv != v.data_ptr()) { encode(&mv, v.data_ptr(), rows, 64, 128); pv = v.data_ptr(); }
  if (po != out.data_ptr()) { encode(&mo, out.data_ptr(), rows, 64, 64); po = out.data_ptr(); }
  attention_kernel<<<GRID, 512, SMEM_BYTES, c10::cuda::getCurrentCUDAStream()>>>(mq, mk, mv, mo);
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return out;
}
"""

cpp_source = r"""
torch::Tensor causal_attention(torch::Tensor q, torch::Tensor k, torch::Tensor v);
"""

module = load_inline(
    name="causal_attention_sm90a_ws3_lazy",
    cpp_sources=cpp_source,
    cuda_sources=cuda_source,
    functions=["causal_attention"],
    extra_cuda_cflags=["-O3", "-gencode=arch=compute_90a,code=sm_90a"],
    verbose=False,
)


class ModelNew(nn.Module):
    def forward(self, q, k, v):
        return module.causal_attention(q, k, v)
