import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.cpp_extension import load_inline

cuda_source = r"""
#include <torch/types.h>
#include <c10/cuda/CUDAStream.h>
#include <c10/cuda/CUDAException.h>
#include <cuda_runtime.h>
#include <cooperative_groups.h>

namespace cg = cooperative_groups;

constexpr int BATCH = 128;
constexpr int CHANNELS = 32;
constexpr int PLANE = 254 * 254;
constexpr int PLANE4 = PLANE / 4;
constexpr int HALF4 = (PLANE4 + 1) / 2;
constexpr int CLUSTER = 8;
constexpr int THREADS = 512;
constexpr int SMEM_K = 8;
constexpr int REG_K = 7;
constexpr int FULL4 = (SMEM_K + REG_K) * THREADS;
constexpr int SMEM_BYTES = SMEM_K * THREADS * 16;
static_assert(PLANE4 == 16129 && HALF4 == 8065 && FULL4 == 7680, "plane split");

__device__ __forceinline__ void cp16(unsigned dst, const void* src) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(dst), "l"(src) : "memory");
}
__device__ __forceinline__ void cp_commit() {
    asm volatile("cp.async.commit_group;" ::: "memory");
}
template <int N>
__device__ __forceinline__ void cp_wait() {
    asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}
__device__ __forceinline__ float rcp_approx(float x) {
    float r;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
    return r;
}
__device__ __forceinline__ float ex2_approx(float x) {
    float r;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
    return r;
}

// nls is -scale * log2(e): sigmoid(z) = 1 / (1 + 2^(-z * log2(e))).
__device__ __forceinline__ float act(float v, float cb, float b, float nls) {
    const float z = ((v + cb) + b) * nls;
    return rcp_approx(1.0f + ex2_approx(z));
}

__device__ __forceinline__ float4 act4(float4 v, float cb, float b, float nls, float& s) {
    v.x = act(v.x, cb, b, nls);
    v.y = act(v.y, cb, b, nls);
    v.z = act(v.z, cb, b, nls);
    v.w = act(v.w, cb, b, nls);
    s += (v.x + v.y) + (v.z + v.w);
    return v;
}

__device__ __forceinline__ float sq4(float4 v, float mean) {
    const float a = v.x - mean, b = v.y - mean, c = v.z - mean, d = v.w - mean;
    return (a * a + b * b) + (c * c + d * d);
}

__device__ __forceinline__ float4 norm4(float4 v, float mean, float a, float b) {
    v.x = fmaf(v.x - mean, a, b);
    v.y = fmaf(v.y - mean, a, b);
    v.z = fmaf(v.z - mean, a, b);
    v.w = fmaf(v.w - mean, a, b);
    return v;
}

__device__ __forceinline__ float block_sum(float v, float* red) {
#pragma unroll
    for (int d = 16; d > 0; d >>= 1) v += __shfl_xor_sync(0xffffffffu, v, d);
    if ((threadIdx.x & 31) == 0) red[threadIdx.x >> 5] = v;
    __syncthreads();
    float s = 0.0f;
#pragma unroll
    for (int i = 0; i < THREADS / 32; ++i) s += red[i];
    return s;
}

// A cluster of eight blocks holds one group on chip: four planes, half a plane a block,
// half of that in shared memory and half in registers. One read, one write, in place.
__global__ void __cluster_dims__(CLUSTER, 1, 1) __launch_bounds__(THREADS, 2)
sigmoid_groupnorm_kernel(float4* y, const float* __restrict__ conv_bias,
                         const float* __restrict__ bias, const float* __restrict__ scale,
                         const float* __restrict__ gamma, const float* __restrict__ beta,
                         float eps) {
    extern __shared__ float4 smem[];
    __shared__ float red_a[THREADS / 32];
    __shared__ float red_b[THREADS / 32];
    __shared__ float2 part[CLUSTER];

    asm volatile("barrier.cluster.arrive.relaxed;" ::: "memory");

    const int t = threadIdx.x;
    const int rank = blockIdx.x & (CLUSTER - 1);
    const int half = blockIdx.x & 1;
    const int plane = blockIdx.x >> 1;
    const int c = plane & (CHANNELS - 1);
    const int cnt = half ? (PLANE4 - HALF4) : HALF4;
    float4* p = y + (size_t)plane * PLANE4 + half * HALF4 + t;
    float4* sm = smem + t;
    const unsigned dst = (unsigned)__cvta_generic_to_shared(sm);

    // Each thread reads back only what it copied itself.
#pragma unroll
    for (int k = 0; k < SMEM_K / 2; ++k) cp16(dst + k * THREADS * 16, p + k * THREADS);
    cp_commit();
#pragma unroll
    for (int k = SMEM_K / 2; k < SMEM_K; ++k) cp16(dst + k * THREADS * 16, p + k * THREADS);
    cp_commit();
    float4 r[REG_K];
#pragma unroll
    for (int k = 0; k < REG_K; ++k) r[k] = __ldcs(p + (SMEM_K + k) * THREADS);
    float4 u = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    const bool tail = t < cnt - FULL4;
    if (tail) u = __ldcs(p + FULL4);

    const float cb = conv_bias[c];
    const float bi = bias[c];
    const float nls = -1.44269504088896341f * scale[c];

    float s = 0.0f;
    cp_wait<1>();
#pragma unroll
    for (int k = 0; k < SMEM_K / 2; ++k) {
        float4 v = sm[k * THREADS];
        sm[k * THREADS] = act4(v, cb, bi, nls, s);
    }
    cp_wait<0>();
#pragma unroll
    for (int k = SMEM_K / 2; k < SMEM_K; ++k) {
        float4 v = sm[k * THREADS];
        sm[k * THREADS] = act4(v, cb, bi, nls, s);
    }
#pragma unroll
    for (int k = 0; k < REG_K; ++k) r[k] = act4(r[k], cb, bi, nls, s);
    if (tail) u = act4(u, cb, bi, nls, s);

    // Sum, then squares about the block's own mean; the cluster joins them exactly.
    const float bsum = block_sum(s, red_a);
    const float bmean = bsum / (float)(cnt * 4);
    float q = tail ? sq4(u, bmean) : 0.0f;
#pragma unroll
    for (int k = 0; k < REG_K; ++k) q += sq4(r[k], bmean);
#pragma unroll
    for (int k = 0; k < SMEM_K; ++k) q += sq4(sm[k * THREADS], bmean);

    // Every block of the cluster has started before its memory is written to.
    asm volatile("barrier.cluster.wait;" ::: "memory");
    const float bm2 = block_sum(q, red_b);

    cg::cluster_group cluster = cg::this_cluster();
    if (t < CLUSTER) {
        float2* remote = cluster.map_shared_rank(&part[0], t);
        remote[rank] = make_float2(bsum, bm2);
    }
    cluster.sync();

    constexpr float N0 = 4.0f * HALF4;
    constexpr float N1 = 4.0f * (PLANE4 - HALF4);
    constexpr float INV_N = 1.0f / (4.0f * PLANE);
    float total = 0.0f;
#pragma unroll
    for (int i = 0; i < CLUSTER; ++i) total += part[i].x;
    const float mean = total * INV_N;
    float m2 = 0.0f;
#pragma unroll
    for (int i = 0; i < CLUSTER; ++i) {
        const float n = (i & 1) ? N1 : N0;
        const float inv = (i & 1) ? (1.0f / N1) : (1.0f / N0);
        const float2 v = part[i];
        const float d = fmaf(v.x, inv, -mean);
        m2 += v.y + n * d * d;
    }
    const float var = m2 * INV_N;
    const float a = rsqrtf(var + eps) * gamma[c];
    const float b = beta[c];

#pragma unroll
    for (int k = 0; k < REG_K; ++k) __stcs(p + (SMEM_K + k) * THREADS, norm4(r[k], mean, a, b));
    if (tail) __stcs(p + FULL4, norm4(u, mean, a, b));
#pragma unroll
    for (int k = 0; k < SMEM_K; ++k) __stcs(p + k * THREADS, norm4(sm[k * THREADS], mean, a, b));
}

void sigmoid_groupnorm_(torch::Tensor y, torch::Tensor conv_bias, torch::Tensor bias,
                        torch::Tensor scale, torch::Tensor gamma, torch::Tensor beta,
                        double eps) {
    TORCH_CHECK(y.is_contiguous() && y.numel() == (int64_t)BATCH * CHANNELS * PLANE,
                "unexpected shape");
    auto stream = c10::cuda::getCurrentCUDAStream();
    static bool ready = false;
    if (!ready) {
        C10_CUDA_CHECK(cudaFuncSetAttribute(sigmoid_groupnorm_kernel,
                                            cudaFuncAttributeMaxDynamicSharedMemorySize,
                                            SMEM_BYTES));
        ready = true;
    }
    sigmoid_groupnorm_kernel<<<BATCH * CHANNELS * 2, THREADS, SMEM_BYTES, stream.stream()>>>(
        reinterpret_cast<float4*>(y.data_ptr<float>()), conv_bias.data_ptr<float>(),
        bias.data_ptr<float>(), scale.data_ptr<float>(), gamma.data_ptr<float>(),
        beta.data_ptr<float>(), (float)eps);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
}
"""

cpp_source = r"""
void sigmoid_groupnorm_(torch::Tensor y, torch::Tensor conv_bias, torch::Tensor bias,
                        torch::Tensor scale, torch::Tensor gamma, torch::Tensor beta,
                        double eps);
"""

sigmoid_groupnorm_ext = load_inline(
    name="sigmoid_groupnorm_ext",
    cpp_sources=cpp_source,
    cuda_sources=cuda_source,
    functions=["sigmoid_groupnorm_"],
    extra_cuda_cflags=["-O3"],
)


class ModelNew(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size, num_groups, bias_shape, scale_shape):
        super(ModelNew, self).__init__()
        self.conv = nn.Conv2d(in_channels, out_channels, kernel_size)
        self.bias = nn.Parameter(torch.randn(bias_shape))
        self.scale = nn.Parameter(torch.randn(scale_shape))
        self.group_norm = nn.GroupNorm(num_groups, out_channels)
        self.eps = float(self.group_norm.eps)

    def forward(self, x):
        with torch.no_grad():
            # The convolution's bias is added inside the fused kernel.
            y = F.conv2d(x, self.conv.weight, None).contiguous()
            sigmoid_groupnorm_ext.sigmoid_groupnorm_(
                y,
                self.conv.bias,
                self.bias,
                self.scale,
                self.group_norm.weight,
                self.group_norm.bias,
                self.eps,
            )
        return y
