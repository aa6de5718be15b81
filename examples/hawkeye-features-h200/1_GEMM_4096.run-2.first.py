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

__device__ __forceinline__ void wgmma_n256(float (&d)[128], uint64_t da, uint64_t db, int acc) {
  asm volatile(
    "{\n"
    ".reg .pred p;\n"
    "setp.ne.b32 p, %130, 0;\n"
    "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 {"
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
    "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
    "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
    "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, "
    "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "
    "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, "
    "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, "
    "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
    "}, %128, %129, p, 1, 1, 0, 1;\n"
    "}\n"
    : F16(d, 0), F16(d, 16), F16(d, 32), F16(d, 48), F16(d, 64), F16(d, 80), F16(d, 96), F16(d, 112)
    : "l"(da), "l"(db), "r"(acc));
}

constexpr int DIM = 4096;
constexpr int STAGES = 4;
constexpr int KT = DIM / 64;
constexpr uint32_t A_BYTES = 128 * 64 * 2;
constexpr uint32_t B_BYTES = 64 * 256 * 2;
constexpr uint32_t STAGE_BYTES = A_BYTES + B_BYTES;
constexpr uint32_t OFF_C = STAGES * STAGE_BYTES;
constexpr uint32_t OFF_BAR = OFF_C + 4 * 8192;
constexpr uint32_t SMEM_BYTES = OFF_BAR + 64 + 1024;

__device__ __forceinline__ void arrive_cluster(uint32_t bar, uint32_t cta) {
  asm volatile(
      "{\n"
      ".reg .b32 r;\n"
      "mapa.shared::cluster.u32 r, %0, %1;\n"
      "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [r];\n"
      "}\n" ::"r"(bar), "r"(cta)
      : "memory");
}
__device__ __forceinline__ void cluster_sync() {
  asm volatile("barrier.cluster.arrive.release;\n" ::: "memory");
  asm volatile("barrier.cluster.wait.acquire;\n" ::: "memory");
}
__device__ __forceinline__ void tma_load_multicast(uint32_t dst, const CUtensorMap* map, uint32_t bar, int x, int y,
                                                   uint16_t mask) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster"
      " [%0], [%1, {%4, %5}], [%2], %3;"
      ::"r"(dst), "l"(map), "r"(bar), "h"(mask), "r"(x), "r"(y)
      : "memory");
}

// 128 x 256 tiles; a cluster of two blocks shares one tile of B (each loads half and multicasts it).
// 128 blocks work through four 2048 x 2048 quadrants.
__global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(384, 1)
gemm_kernel(const __grid_constant__ CUtensorMap map_a, const __grid_constant__ CUtensorMap map_b,
            const __grid_constant__ CUtensorMap map_c) {
  extern __shared__ uint8_t smem_raw[];
  const uint32_t base = (smem_u32(smem_raw) + 1023u) & ~1023u;
  const uint32_t bar_full = base + OFF_BAR;
  const uint32_t bar_empty = bar_full + 8 * STAGES;
  const int tid = threadIdx.x;
  const int wg = tid >> 7;
  uint32_t rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));

  if (tid == 0) {
    for (int i = 0; i < STAGES; ++i) {
      mbar_init(bar_full + 8 * i, 1);
      mbar_init(bar_empty + 8 * i, 16);  // eight consumer warps in each of two blocks
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();
  cluster_sync();

  const int cl = blockIdx.x >> 1;
  const int mp = cl & 7;
  const int nn = cl >> 3;

  if (wg == 0) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
    if (tid == 0) {
      int s = 0;
      uint32_t ph = 0;
      for (int t = 0; t < 4; ++t) {
        const int qm = t >> 1;
        const int qn = qm ^ (t & 1);
        const int m0 = (qm * 16 + mp * 2 + (int)rank) * 128;
        const int n0 = (qn * 8 + nn) * 256;
        for (int kt = 0; kt < KT; ++kt) {
          const uint32_t full = bar_full + 8 * s;
          const uint32_t a = base + s * STAGE_BYTES;
          const uint32_t b = a + A_BYTES;
          mbar_wait(bar_empty + 8 * s, ph ^ 1);
          mbar_expect(full, STAGE_BYTES);
          tma_load(a, &map_a, full, kt * 64, m0);
#pragma unroll
          for (int h = 0; h < 2; ++h) {
            const int chunk = (int)rank * 2 + h;
            tma_load_multicast(b + chunk * 8192, &map_b, full, n0 + chunk * 64, kt * 64, (uint16_t)3);
          }
          if (++s == STAGES) { s = 0; ph ^= 1; }
        }
      }
    }
    __syncwarp();
    cluster_sync();
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
    const int w = wg - 1;
    const int wtid = tid & 127;
    const int warp = wtid >> 5;
    const int lane = tid & 31;
    const int row = warp * 16 + (lane >> 2);
    const uint32_t cbase = base + OFF_C + w * 16384;
    const uint32_t crow = cbase + row * 128 + (lane & 3) * 4;
    const uint32_t rx = row & 7;
    float d[128];
#pragma unroll
    for (int i = 0; i < 128; ++i) d[i] = 0.f;
    int s = 0;
    uint32_t ph = 0;
    for (int t = 0; t < 4; ++t) {
      const int qm = t >> 1;
      const int qn = qm ^ (t & 1);
      const int m0 = (qm * 16 + mp * 2 + (int)rank) * 128;
      const int n0 = (qn * 8 + nn) * 256;
      int prev = 0;
      for (int kt = 0; kt < KT; ++kt) {
        mbar_wait(bar_full + 8 * s, ph);
        const uint32_t a = base + s * STAGE_BYTES;
        const uint64_t da = make_desc(a + w * 8192, 16, 1024);
        const uint64_t db = make_desc(a + A_BYTES, 8192, 1024);
        wgmma_fence();
#pragma unroll
        for (int kk = 0; kk < 4; ++kk)
          wgmma_n256(d, da + kk * 2, db + kk * 128, (kt | kk) != 0 ? 1 : 0);
        wgmma_commit();
        wgmma_wait<1>();
        if (kt > 0 && lane < 2) arrive_cluster(bar_empty + 8 * prev, lane);
        prev = s;
        if (++s == STAGES) { s = 0; ph ^= 1; }
      }
      wgmma_wait<0>();
      fence_regs(d);
      if (lane < 2) arrive_cluster(bar_empty + 8 * prev, lane);

      // Write out four 64 x 64 boxes through two buffers.
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        if (wtid == 0) asm volatile("cp.async.bulk.wait_group.read 1;" ::: "memory");
        named_sync(1 + w);
        const uint32_t buf = (j & 1) * 8192;
#pragma unroll
        for (int i = 0; i < 8; ++i) {
          const int o = (j * 8 + i) * 4;
          const uint32_t addr = crow + buf + ((i ^ rx) << 4);
          st_shared_u32(addr, pack_bf16(d[o], d[o + 1]));
          st_shared_u32(addr + 1024, pack_bf16(d[o + 2], d[o + 3]));
        }
        fence_async_proxy();
        named_sync(1 + w);
        if (wtid == 0) tma_store(&map_c, cbase + buf, n0 + j * 64, m0 + w * 64);
      }
    }
    if (wtid == 0) asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
    __syncwarp();
    cluster_sync();
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

torch::Tensor gemm4096(torch::Tensor a, torch::Tensor b) {
  TORCH_CHECK(a.is_cuda() && b.is_cuda() && a.is_contiguous() && b.is_contiguous(), "contiguous CUDA tensors");
  TORCH_CHECK(a.scalar_type() == torch::kBFloat16 && b.scalar_type() == torch::kBFloat16, "bfloat16");
  TORCH_CHECK(a.numel() == (int64_t)DIM * DIM && b.numel() == (int64_t)DIM * DIM, "4096 x 4096");
  auto c = torch::empty_like(a);
  static CUtensorMap ma, mb, mc;
  static void *pa = nullptr, *pb = nullptr, *pc = nullptr;
  static bool ready = false;
  if (!ready) {
    C10_CUDA_CHECK(cudaFuncSetAttribute(gemm_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, SMEM_BYTES));
    ready = true;
  }
  if (pa != a.data_ptr()) { encode(&ma, a.data_ptr(), DIM, DIM, 128); pa = a.data_ptr(); }
  if (pb != b.data_ptr()) { encode(&mb, b.data_ptr(), DIM, DIM, 64); pb = b.data_ptr(); }
  if (pc != c.data_ptr()) { encode(&mc, c.data_ptr(), DIM, DIM, 64); pc = c.data_ptr(); }
  gemm_kernel<<<128, 384, SMEM_BYTES, c10::cuda::getCurrentCUDAStream()>>>(ma, mb, mc);
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return c;
}
"""

cpp_source = r"""
torch::Tensor gemm4096(torch::Tensor a, torch::Tensor b);
"""

module = load_inline(
    name="gemm4096_sm90a_mc2",
    cpp_sources=cpp_source,
    cuda_sources=cuda_source,
    functions=["gemm4096"],
    extra_cuda_cflags=["-O3", "-gencode=arch=compute_90a,code=sm_90a"],
    verbose=False,
)


class ModelNew(nn.Module):
    def forward(self, a, b):
        return module.gemm4096(a, b)
