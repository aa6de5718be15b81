"""A layer that calls both steps, unless it is told to do something else."""

from sglang.kernels.ops.attention.rope import apply_rope_inplace
from sglang.kernels.ops.layernorm.norm import fused_inplace_qknorm


class Qwen3Attention:
    def forward_prepare_native(self, q, k, weights, table, places, does="both", eps=1e-6, is_neox=True):
        if does == "fails":
            raise KeyError("of the layer")
        for _ in range(2 if does == "twice" else 1):
            fused_inplace_qknorm(q=q, k=k, q_weight=weights[0], k_weight=weights[1], head_dim=q.shape[-1], eps=eps)
        if does == "norm alone":
            return q
        if does == "other arrays":
            q = type(q)(q.shape, start=q.start + (1 << 30))
        apply_rope_inplace(q, k, table, places, is_neox=is_neox, rope_dim=0)
        return q
