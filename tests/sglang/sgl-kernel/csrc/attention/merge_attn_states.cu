// A stand-in of ours for SGLang's file of this name: it offers what the binding uses.
#include "checks.h"

template <typename T>
__global__ void merge_attn_states_kernel(T *v, float *s, const T *va, const float *sa, const T *vb, const float *sb, int64_t n, int64_t dim) {
    int64_t at = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (at >= n) return;
    float m = fmaxf(sa[at / dim], sb[at / dim]), p = expf(sa[at / dim] - m), q = expf(sb[at / dim] - m);
    v[at] = T((p * float(va[at]) + q * float(vb[at])) / (p + q));
    if (at % dim == 0) s[at / dim] = logf(p + q) + m;
}

template <typename T>
void launch(at::Tensor va, at::Tensor sa, at::Tensor vb, at::Tensor sb, at::Tensor v, at::Tensor s) {
    const c10::cuda::OptionalCUDAGuard guard(va.device());
    auto stream = at::cuda::getCurrentCUDAStream();
    merge_attn_states_kernel<T><<<(v.numel() + 127) / 128, 128, 0, stream>>>(
        v.data_ptr<T>(), s.data_ptr<float>(), va.data_ptr<T>(), sa.data_ptr<float>(), vb.data_ptr<T>(), sb.data_ptr<float>(), v.numel(), v.size(-1));
}

void merge_state_v2(at::Tensor v_a, at::Tensor s_a, at::Tensor v_b, at::Tensor s_b, at::Tensor v_merged, at::Tensor s_merged) {
    CHECK_INPUT(v_a);
    TORCH_CHECK(v_a.dim() == 3 && v_a.size(2) % 8 == 0, "three dimensions, the last a multiple of 8, not ", v_a.size(2));
    switch (v_merged.scalar_type()) {
        case at::ScalarType::Half: return launch<__half>(v_a, s_a, v_b, s_b, v_merged, s_merged);
        case at::ScalarType::BFloat16: return launch<__nv_bfloat16>(v_a, s_a, v_b, s_b, v_merged, s_merged);
        default: TORCH_CHECK(false, "unsupported ", v_merged.scalar_type());
    }
}
