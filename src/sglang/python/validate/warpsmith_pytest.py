"""Loads SGLang's plug-ins before SGLang's own tests, and lets tests of an older layout find the modules of a newer one."""

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys

# Where modules went between July and August of 2026.
MOVED = {
    "sglang.jit_kernel": "sglang.kernels.jit",
    "sglang.jit_kernel.utils": "sglang.kernels.jit.utils",
    "sglang.jit_kernel.activation": "sglang.kernels.ops.activation.activation",
    "sglang.jit_kernel.norm": "sglang.kernels.ops.layernorm.norm",
}


class Moved(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name, path=None, target=None):
        return importlib.machinery.ModuleSpec(name, self, is_package=True) if name in MOVED else None

    def create_module(self, spec):
        return importlib.import_module(MOVED[spec.name])

    def exec_module(self, module):
        module.__spec__ = importlib.util.find_spec(module.__name__) or module.__spec__


def pytest_configure(config):
    import sglang.srt.plugins

    # Last in line: where the old modules are still there, they are taken.
    sys.meta_path.append(Moved())
    sglang.srt.plugins.load_plugins()
