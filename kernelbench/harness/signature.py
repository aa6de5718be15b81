"""The signature of a problem's module: names, element types, shapes and strides, and the operations of one call."""

import inspect

import torch

import wire
from draw import mapped_tensors

MOST = 64  # values that are described


def describe(function, values, skip=0):
    """What each value of a call is, by the name of the parameter that takes it."""
    names = names_of(function, len(values), skip)
    leaves = [leaf for name, value in zip(names, values) for leaf in flat(name, value)]
    return [one(name, value) for name, value in leaves[:MOST]]


def names_of(function, count, skip):
    """The names of the parameters that take so many positional values; their places where they have no names."""
    try:
        parameters = list(inspect.signature(function).parameters.values())[skip:]
    except (TypeError, ValueError):
        parameters = []
    named = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    return (named + [f"argument {at}" for at in range(len(named), count)])[:count]


def flat(name, value):
    if isinstance(value, dict):
        return [leaf for key, item in value.items() for leaf in flat(f"{name}[{key!r}]", item)]
    if isinstance(value, (list, tuple)) and any(isinstance(item, (torch.Tensor, list, tuple, dict)) for item in value):
        return [leaf for at, item in enumerate(value) for leaf in flat(f"{name}[{at}]", item)]
    return [(name, value)]


def one(name, value):
    if not isinstance(value, torch.Tensor):
        return {"name": name[:80], "value": repr(value)[:80]}
    layout = {"dtype": wire.name_of(value.dtype), "shape": list(value.shape), "stride": list(value.stride())}
    return {"name": name[:80], "tensor": layout}


def stated(names):
    """How many operations a call takes by the file's own word; None where it says nothing that is a count."""
    count = names.get("operations")
    return int(count) if type(count) in (int, float) and 1 <= count < 2**63 else None


def flops(model_class, init, inputs):
    """Floating-point operations of one call's matrix products, convolutions and attentions, counted without computing
    anything; None where that fails."""
    try:
        bare = lambda t: torch.empty_like(t, device="meta")  # noqa: E731
        return called(model_class, mapped_tensors(init, bare), mapped_tensors(inputs, bare))["flops"]
    except Exception:  # a model that looks at its values cannot be run without them
        return None


def called(model_class, init, inputs):
    """One call without computing anything: its operations, the model, and what it puts out."""
    from torch.utils.flop_counter import FlopCounterMode

    with torch.no_grad(), torch.device("meta"), FlopCounterMode(display=False) as counter:
        model = model_class(*init)
        outputs = model(*inputs)
    return {"flops": counter.get_total_flops(), "model": model, "outputs": outputs}


def imported():
    """Imports what such a call needs, which takes torch seconds."""
    try:
        called(lambda: torch.nn.Conv1d(1, 1, 1), [], [torch.empty(1, 1, 1, device="meta")])
    except Exception:  # an older torch counts nothing
        pass
