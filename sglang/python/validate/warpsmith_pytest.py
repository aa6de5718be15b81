"""Loads SGLang's plug-ins before SGLang's own tests, and lets tests of an older layout find the modules of a newer one."""

import importlib
import importlib.util
import sys

# Where modules went between July and August of 2026.
MOVED = {
    "sglang.jit_kernel": "sglang.kernels.jit",
    "sglang.jit_kernel.utils": "sglang.kernels.jit.utils",
    "sglang.jit_kernel.activation": "sglang.kernels.ops.activation.activation",
    "sglang.jit_kernel.norm": "sglang.kernels.ops.layernorm.norm",
}


def pytest_load_initial_conftests():
    """Before the tests' own conftest, which may import SGLang."""
    import layers

    layers.stand_ins()
    import sglang.srt.plugins

    sglang.srt.plugins.load_plugins()
    # Where the old modules are still there, they are taken.
    if importlib.util.find_spec("sglang.jit_kernel") is None:
        for old, new in MOVED.items():
            try:
                sys.modules[old] = importlib.import_module(new)
            except ImportError:
                continue
