"""The second step of a chain."""

from sglang.kernels.jit.utils.compile import called


def apply_rope_inplace(q, k, cos_sin, positions, *, is_neox=True, rope_dim=0):
    called.append(("rope", q))
