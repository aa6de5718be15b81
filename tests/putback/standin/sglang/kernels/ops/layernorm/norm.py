"""The first step of a chain: it remembers that it was called."""

from sglang.kernels.jit.utils.compile import called


def fused_inplace_qknorm(q, k, q_weight, k_weight, eps=1e-6, *, head_dim=0):
    called.append(("qknorm", q))
