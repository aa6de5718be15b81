"""How does a kernel get to be called where the framework calls another library's function for the same operator?"""

import functools
import importlib

from . import compiled, guard, swap


def around(hooked):
    """In the function's place: the framework's own call of our file where a kernel was certified, else the function."""
    watched = [
        (
            dict(kernel, operator=f"{kernel['operator']} by {hook['path']}"),
            (kernel["operator"], kernel["dtype"]),
            hook,
            guard.Guard(kernel),
        )
        for kernel, hook in hooked
    ]

    import torch

    finding = [(*parts, functools.partial(function, parts[2]["through"])) for parts in watched]
    faster = compiled.hook(finding, swap.absent)

    def chosen(original, *args, **keywords):
        # What traces a model must not meet what it cannot read.
        if torch.compiler.is_compiling():
            return original(*args, **keywords)
        return faster(original, *args, **keywords)

    def call(original, *args, **keywords):
        if torch.compiler.is_compiling():
            return original(*args, **keywords)
        refused = None
        for kernel, named, hook, watch in watched:
            given = dict(zip(hook["parameters"], args), **keywords)
            why = watch.refuses(given) or ("not in place" if named in swap.absent else None)
            if not why:
                guard.count(kernel, guard.HIT)
                own = function(hook["through"])
                return own(*[given[name] for name in hook["passed"] if name in given])
            # Of kernels of several types, the one of the call's type says why.
            if refused is None or refused[1] == "dtype":
                refused = kernel, why
        guard.count(*refused)
        return original(*args, **keywords)

    return chosen if faster else call


def function(paths):
    """The first of these functions that is there."""
    for path in paths:
        module, name = path.rsplit(".", 1)
        try:
            return getattr(importlib.import_module(module), name)
        except (ImportError, AttributeError):
            continue
    raise ImportError(f"none of {', '.join(paths)} is in the installed sglang")


def targets():
    """Which functions to put it around: path and hook, for what is switched on and installed."""
    for kernel in guard.SWAP["kernels"]:
        for hook in kernel.get("functions", []):
            if guard.switched_on(kernel["operator"]):
                yield kernel, hook
