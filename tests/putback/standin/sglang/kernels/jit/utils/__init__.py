"""As sglang exports it."""

from sglang.kernels.jit.utils.compile import KERNEL_PATH, load_jit
