"""Are two outputs the same, and what would pass for the same without being it?

Every element is looked at, by the rule in tolerance.py. A problem's tolerance is one of floating point: whole numbers must
be equal.
"""

import torch

import tolerance
import wire
from tolerance import CHUNK, bits, computable, widened


def leaves(value, path="output"):
    """The tensors and other values of an output as it was written down, each with where it stands."""
    if isinstance(value, dict) and "tensor" in value:
        return [(path, value)]
    if isinstance(value, dict) and "tuple" in value:
        value = value["tuple"]
    if isinstance(value, list):
        return [leaf for at, item in enumerate(value) for leaf in leaves(item, f"{path}[{at}]")]
    if isinstance(value, dict) and "dict" in value:
        return [leaf for key, item in value["dict"] for leaf in leaves(item, f"{path}[{key!r}]")]
    return [(path, {"value": value})]


def form(expected, got):
    """What is wrong with the form of an output, in words; None where nothing is."""
    if [path for path, _ in expected] != [path for path, _ in got]:
        names = lambda side: ", ".join(path for path, _ in side[:8]) or "nothing"  # noqa: E731
        return f"expected {names(expected)}, got {names(got)}"
    for (path, ours), (_, theirs) in zip(expected, got):
        if ("tensor" in ours) != ("tensor" in theirs):
            kind = lambda leaf: "a tensor" if "tensor" in leaf else f"the value {leaf['value']!r}"[:80]  # noqa: E731
            return f"{path}: expected {kind(ours)}, got {kind(theirs)}"
        if "tensor" not in ours:
            if ours != theirs:
                return f"{path}: expected the value {ours['value']!r}, got {theirs['value']!r}"[:200]
            continue
        problem = form_of_tensor(ours["tensor"], theirs["tensor"])
        if problem:
            return f"{path}: {problem}"
    return None


def form_of_tensor(ours, theirs):
    shape = lambda spec: "(" + ", ".join(map(str, spec["shape"])) + ")"  # noqa: E731
    if ours["shape"] != theirs["shape"]:
        return f"expected the shape {shape(ours)}, got {shape(theirs)}"
    if ours["dtype"] != theirs["dtype"]:
        return f"expected the element type {ours['dtype']}, got {theirs['dtype']}"
    if ours["device"] != theirs["device"]:
        return f"expected a tensor on {ours['device']}, got one on {theirs['device']}"
    numbers = [theirs["bytes"], theirs["address"], *theirs["stride"]]
    if not all(isinstance(number, int) and number >= 0 for number in numbers) or len(theirs["stride"]) != len(ours["shape"]):
        return "its description is none of a tensor"
    size = torch.empty(0, dtype=wire.dtype_of(ours["dtype"])).element_size()
    extent = 1 + sum((length - 1) * stride for length, stride in zip(theirs["shape"], theirs["stride"]))
    if 0 not in ours["shape"] and extent * size != theirs["bytes"]:
        return "its description is none of a tensor"
    return None


def slot(ours, theirs, atol, rtol):
    """The first output that is wrong, with how wrong it is."""
    for (path, right), (_, got) in zip(ours, theirs):
        if isinstance(right, torch.Tensor):
            found = elements(right, got, atol, rtol, located=True)
            if found["wrong"]:
                return {"output": path, **found}
    return None


def elements(right, got, atol, rtol, located=False):
    """How many elements are wrong, and which most; where they lie too, if that is asked for."""
    spread = Spread(right.shape)
    right, got = right.reshape(-1), got.reshape(-1)
    if tolerance.clearly_right([(right, got)], atol, rtol):
        return {"wrong": 0}
    wrong = nan = 0
    worst, worst_at = -1.0, 0
    exact = not (right.is_floating_point() or right.is_complex())
    atol, rtol = (0.0, 0.0) if exact else (atol, rtol)
    for start in range(0, right.numel(), CHUNK):
        r, g = right[start : start + CHUNK], got[start : start + CHUNK]
        bad = tolerance.wrong(r, g, atol, rtol)
        count = int(bad.sum())
        if not count:
            continue
        wrong += count
        distance = (widened(r) - widened(g)).abs().nan_to_num(nan=float("inf"))
        distance = torch.where(bad, distance, -1.0)
        if located:
            spread.take(bad, start, distance, r)
        nan += 0 if exact else int(g.isnan().sum())
        most = int(distance.argmax())
        if float(distance[most]) > worst:
            worst, worst_at = float(distance[most]), start + most
    text = lambda side: str(side[worst_at].item()) if wrong else ""  # noqa: E731
    found = {"wrong": wrong, "total": right.numel(), "worst_at": worst_at, "nan": nan, "expected": text(right), "got": text(got)}
    return {**found, "spread": spread.said()} if located else found


class Spread:
    """Where the wrong elements of a tensor lie, axis by axis, and how wrong they are at most."""

    def __init__(self, shape):
        self.shape, self.ranges = list(shape), None
        self.absolute, self.relative = None, None

    def take(self, bad, start, distance, right):
        places = bad.nonzero().flatten() + start
        below, found = 1, []
        for length in reversed(self.shape):
            along = torch.div(places, below, rounding_mode="floor") % length
            found.insert(0, [int(along.min()), int(along.max())])
            below *= length
        known = self.ranges or found
        self.ranges = [[min(a[0], b[0]), max(a[1], b[1])] for a, b in zip(known, found)]
        finite = bad & distance.isfinite()
        self.absolute = largest(self.absolute, distance[finite])
        ratios = distance[finite] / widened(right)[finite].abs()
        self.relative = largest(self.relative, ratios[ratios.isfinite()])

    def said(self):
        return {"shape": self.shape, "ranges": self.ranges or [], "max_absolute": self.absolute, "max_relative": self.relative}


def largest(known, values):
    most = float(values.max()) if values.numel() else None
    return most if known is None else known if most is None else max(known, most)


def all_clearly_same(right, got, atol, rtol):
    """Whether all outputs of all slots pass, with one look at the device instead of one for each."""
    pairs = [(r, g) for ours, theirs in zip(right, got) for (_, r), (_, g) in zip(ours, theirs) if isinstance(r, torch.Tensor)]
    return tolerance.clearly_right([(r.reshape(-1), g.reshape(-1)) for r, g in pairs], atol, rtol)


def no_differences(found):
    """Whether none of these tensors holds a true element."""
    verdicts = [one.any() for one in found]
    return not verdicts or not bool(torch.stack(verdicts).any())


def checksum(tensor):
    """The sum of its memory as whole numbers, as wide as it can be read."""
    whole = bits(tensor).reshape(-1)
    even = whole.numel() * whole.element_size() % 8 == 0 and whole.storage_offset() * whole.element_size() % 8 == 0
    return (whole.view(torch.int64) if even and not whole.is_floating_point() else whole).sum(dtype=torch.int64)


def relative_error(oracle, tensor):
    """The root mean square of the error, relative to that of the oracle; absolute where the oracle is zero throughout."""
    square, total = squares(oracle, tensor)
    return (square / total) ** 0.5 if total > 0 else square**0.5


def close(ours, theirs, most):
    """Whether no output differs by more than this part of the reference's: it takes the memory of a chunk, as an oracle does
    not, which has all inputs and outputs in double precision."""
    pairs = [(right, got) for (_, right), (_, got) in zip(ours, theirs) if isinstance(right, torch.Tensor)]
    found = [squares(right, got) for right, got in pairs if right.is_floating_point()]
    return all(square <= most**2 * total for square, total in found)


def squares(oracle, tensor):
    """The sums of the squares of the differences, and of what it is compared with, where that is finite."""
    square = total = 0.0
    oracle, tensor = oracle.reshape(-1), tensor.reshape(-1)
    for start in range(0, oracle.numel(), CHUNK):
        o, t = oracle[start : start + CHUNK].double(), tensor[start : start + CHUNK].double()
        fine = o.isfinite()
        square += float(torch.where(fine, o - t, 0.0).square().sum())
        total += float(torch.where(fine, o, 0.0).square().sum())
    return square, total


def is_an_input(outputs, inputs):
    """Whether an output holds what an input holds, bit by bit."""
    same = lambda a, b: a.shape == b.shape and a.dtype == b.dtype and torch.equal(bits(a), bits(b))  # noqa: E731
    return any(isinstance(t, torch.Tensor) and any(same(t, i) for i in inputs) for _, t in outputs)


def audit(slots, inputs, atol, rtol):
    """Labels of a problem that accepts what is no answer, from its reference's outputs on two draws."""
    passes = lambda fake: all(  # noqa: E731
        elements(right, fake(at, index, right), atol, rtol)["wrong"] == 0
        for at, one in enumerate(slots)
        for index, (_, right) in enumerate(one)
        if isinstance(right, torch.Tensor) and right.is_floating_point()
    )
    labels = []
    if not any(isinstance(t, torch.Tensor) and t.is_floating_point() for one in slots for _, t in one):
        return labels
    if any(has_nan(t) for one in slots for _, t in one if isinstance(t, torch.Tensor) and t.is_floating_point()):
        labels.append("the reference puts out NaN, which no candidate can match")
        return labels
    if passes(lambda at, index, right: torch.zeros_like(right)):
        labels.append("zeros pass for its output")
    elif passes(lambda at, index, right: torch.full_like(right, float(slots[at - 1][index][1].double().mean()))):
        labels.append("a constant passes for its output")
    if len(slots) > 1 and passes(lambda at, index, right: slots[at - 1][index][1]):
        labels.append("the output of other inputs passes: it is insensitive to its inputs")
    elif passes(lambda at, index, right: row_of(right)):
        labels.append("one row, repeated, passes for its output")
    def as_input(at, index, right):
        return next((i for i in inputs[at] if i.shape == right.shape and i.dtype == right.dtype), one_more(right))
    if passes(as_input):
        labels.append("an input passes for its output")
    return labels


def has_nan(tensor):
    return bool(computable(tensor).isnan().any())


def row_of(tensor):
    return tensor[:1].expand_as(tensor) if tensor.dim() > 1 and tensor.shape[0] > 1 else one_more(tensor)


def one_more(tensor):
    return (computable(tensor) + 1).to(tensor.dtype)
