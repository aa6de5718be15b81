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
        self.between = described.get("between", [])
        self.written = [a["name"] for a in self.arrays if a["transfer"] in ("out", "in-out")]
        self.read = [a["name"] for a in self.arrays if a["transfer"] == "in"]

    def type_of(self, argument):
        return torch_dtype(self.dtype if argument["dtype"] == "T" else argument["dtype"])

    def caller(self, package):
        """What calls the framework's function, or a chain's one after another, on arguments by name."""
        call = self.described["call"]
        steps = [(function_of(one), one) for one in (call, *call.get("then", []))]

        def whole(values):
            given = None
            for function, one in steps:
                given = function(*ordered(values, one["positional"]), **one.get("keywords", {}))
            return given

        return whole if len(steps) == 1 else Layer(package.chain(self.name, self.dtype), whole)

    def values(self, shape, seed):
        """Arguments by name for a shape, filled as the operator's description says."""
        import torch

        device = self.device
        generator = torch.Generator(device=device).manual_seed(seed)
        made = dict(shape)
        # What a chain's steps hand over holds nothing before them, as an output.
        for argument in (*self.arrays, *(dict(one, transfer="out") for one in self.between)):
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


class Layer:
    """A layer of a model whose method makes a chain's calls, and nothing else."""

    def __init__(self, chain, whole):
        self.chain, self.whole = chain, whole
        self.watched = set()

    def __call__(self, values):
        # The plug-in watches a layer once for each kind of arrays, and serves it from then on.
        kind = tuple((str(one.dtype), tuple(one.shape)) for one in values.values() if hasattr(one, "shape"))
        if kind not in self.watched:
            self.chain.around_layer(lambda layer: self.whole(copied(values)), self)
            self.watched.add(kind)
        return self.chain.around_layer(lambda layer: self.whole(values), self)


def function_of(call):
    """The framework's function of one call."""
    why = []
    for module in call["modules"]:
        try:
            return getattr(importlib.import_module(module), call["function"])
        except (ImportError, AttributeError) as error:
            why.append(f"{module}: {error}")
    raise ImportError("; ".join(why))


def ordered(values, names):
    """The values in the order of a call."""
    return [values[name] for name in names]


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
