"""How is an operator called through the framework's own entry point, and on what?"""

import importlib
import math
import re

DTYPES = {"bf16": "bfloat16", "fp16": "float16", "f32": "float32", "i32": "int32", "i64": "int64", "e4m3": "float8_e4m3fn"}


class Operator:
    """An operator of one type, as swap.json describes it."""

    def __init__(self, name, dtype, described, kernel, device="cuda"):
        self.name, self.dtype, self.described, self.kernel = name, dtype, described, kernel
        self.device = device
        self.arguments = described["arguments"]
        self.arrays = [a for a in self.arguments if a["shape"]]
        self.written = [a["name"] for a in self.arrays if a["transfer"] in ("out", "in-out")]
        self.read = [a["name"] for a in self.arrays if a["transfer"] == "in"]

    def type_of(self, argument):
        return torch_dtype(self.dtype if argument["dtype"] == "T" else argument["dtype"])

    def function(self):
        """The framework's function for it."""
        call = self.described["call"]
        why = []
        for module in call["modules"]:
            try:
                return getattr(importlib.import_module(module), call["function"])
            except (ImportError, AttributeError) as error:
                why.append(f"{module}: {error}")
        raise ImportError("; ".join(why))

    def fixed(self):
        """What is always passed by name."""
        return self.described["call"].get("keywords", {})

    def ordered(self, values, names=None):
        """The values in the order of the call."""
        return [values[name] for name in names or self.described["call"]["positional"]]

    def values(self, shape, seed):
        """Arguments by name for a shape, filled as the operator's description says."""
        import torch

        device = self.device
        generator = torch.Generator(device=device).manual_seed(seed)
        made = dict(shape)
        for argument in self.arrays:
            sizes = [size_of(size, shape) for size in argument["shape"]]
            made[argument["name"]] = filled(argument, sizes, self.type_of(argument), generator, device)
        return made

    def is_certified(self, shape):
        """Whether the kernel may serve this shape."""
        fits = lambda axis, size: (
            size in axis["values"] if "values" in axis else axis["least"] <= size <= axis["most"]
        )
        return all(fits(axis, shape[name]) for name, axis in self.kernel["axes"].items())

    def bytes(self, values):
        """What must be read and written at least."""
        total = 0
        for argument in self.arrays:
            tensor = values[argument["name"]]
            ways = 2 if argument["transfer"] == "in-out" else 1
            total += ways * tensor.numel() * tensor.element_size()
        return total


def torch_dtype(name):
    import torch

    return getattr(torch, DTYPES[name])


def size_of(size, shape):
    if not re.fullmatch(r"[\w\s+*/%()-]*", size):
        raise ValueError(f"not a size: {size!r}")
    return int(eval(size.replace("/", "//"), {"__builtins__": {}}, dict(shape)))


def filled(argument, sizes, dtype, generator, device):
    """What an array holds before the call. Outputs hold NaN, or a large number where there is none."""
    import torch

    if argument["transfer"] == "out":
        return torch.full(sizes, math.nan if dtype.is_floating_point else 77, dtype=dtype, device=device)
    fill = argument["fill"] or {"normal": {"mean": 0, "std": 1}}
    if isinstance(fill, str):
        return (
            torch.zeros(sizes, dtype=dtype, device=device)
            if fill == "zeros"
            else torch.ones(sizes, dtype=dtype, device=device)
        )
    ((kind, said),) = fill.items()
    if kind == "integers":
        made = torch.randint(said["low"], said["high"] + 1, sizes, generator=generator, device=device)
    elif kind == "uniform":
        made = (
            torch.rand(sizes, generator=generator, device=device) * (said["high"] - said["low"]) + said["low"]
        )
    else:
        made = torch.randn(sizes, generator=generator, device=device) * said["std"] + said["mean"]
        share = said.get("minus_infinity", 0)
        if share:
            made[torch.rand(sizes, generator=generator, device=device) < share] = -math.inf
    return made.to(dtype)


def settled(device):
    """Waits until everything has run there, and lets what went wrong show: a launch that was refused is told by the next
    one too, if nobody asked."""
    import torch

    torch.ones(1, device=device).add_(1)
    if torch.device(device).type == "cuda":
        torch.cuda.synchronize(device)


def copied(values):
    """The same arguments, in memory of their own."""
    return {name: value.clone() if hasattr(value, "clone") else value for name, value in values.items()}


def refilled(values, others):
    """These arrays again, with what others hold."""
    for name, value in others.items():
        if hasattr(value, "clone"):
            values[name].copy_(value)
