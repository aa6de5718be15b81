"""Kernels that were made faster, in the place of SGLang's own for the calls that they were certified for.

SGLang finds this package by its entry point and calls register. WARPSMITH_SGLANG=off leaves everything as it was;
a list of operators with commas swaps only those. counters() says how often each kernel was used, and why not.
"""

import logging

from . import guard
from .guard import Switch, all_counters as counters

__all__ = ["chain", "counters", "register", "use"]
logger = logging.getLogger(__name__)


def register():
    """The entry point: hooks what is switched on."""
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType

    from . import chains, functions, library, swap

    guard.keep_counters_now_and_then()
    kernels = [kernel for kernel in guard.SWAP["kernels"] if guard.switched_on(kernel["operator"])]
    if any(kernel["level"] == "J" for kernel in kernels):
        load_jit = swap.loader()
        if load_jit:
            HookRegistry.register(f"{load_jit.__module__}.load_jit", swap.around, HookType.AROUND)
        else:
            logger.warning(
                "warpsmith: the installed sglang has no load_jit where it is looked for; nothing is swapped"
            )
    by_path = {}
    for kernel, hook in functions.targets():
        by_path.setdefault(hook["path"], []).append((kernel, hook))
    for path, hooked in by_path.items():
        HookRegistry.register(path, functions.around(hooked), HookType.AROUND)
    for path, hooks in chains.targets().items():
        for hook in hooks:
            HookRegistry.register(path, hook, HookType.AROUND)
    for kernel in kernels:
        if kernel["level"] == "A":
            library.load(kernel)


def chain(operator, dtype):
    """What stands in the place of a chain's calls: for a validation, which is a layer of its own."""
    from . import chains

    if (operator, dtype) not in chains.placed:
        raise LookupError(f"warpsmith: {operator} {dtype}: this chain is switched off, or no chain of this plug-in")
    return chains.placed[operator, dtype]


def use(ours):
    """Ours (as it begins) or the original, from now on in this process: for comparisons."""
    from . import compiled, library

    Switch.ours = ours
    compiled.use_ours(ours)
    library.use_ours(ours)
