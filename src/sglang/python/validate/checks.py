"""Does the kernel give what the original gives, where it may serve and where it must not?"""

import contextlib
import math

from calls import copied
from told import last_line


class Checks:
    """Of one operator and type, on one plug-in."""

    def __init__(self, told, operator, package):
        self.told, self.operator, self.package = told, operator, package
        self.function = operator.function()

    def check(self, what, passed, how=""):
        self.told.checked(self.operator.name, self.operator.dtype, what, passed, how)

    def call(self, values, ours):
        """Calls the operator; says what it raised, if it did."""
        self.package.use(ours)
        try:
            self.function(*self.operator.ordered(values), **self.operator.fixed())
            shown()
        except Exception as error:
            with contextlib.suppress(Exception):
                shown()
            return error
        finally:
            self.package.use(True)
        return None

    def counted(self):
        return dict(self.package.counters()[self.operator.name][self.operator.dtype])

    def served(self, values):
        """Calls it with the kernel in place: what it raised, and what was counted."""
        before = self.counted()
        raised = self.call(values, ours=True)
        after = self.counted()
        return raised, {
            what: after[what] - before.get(what, 0) for what in after if after[what] != before.get(what, 0)
        }

    def both(self, values, what, expected="hit", exact=False):
        """The original and the kernel on the same arguments: every output, every input, and who served."""
        theirs, ours = copied(values), copied(values)
        wrong = self.call(theirs, ours=False)
        raised, counted = self.served(ours)
        if (wrong is None) != (raised is None):
            told = [last_line(e) if e else "nothing" for e in (wrong, raised)]
            return self.check(
                what, False, f"the original raised {told[0]}, with the kernel it raised {told[1]}"
            )
        if wrong is not None and expected == "hit":
            return self.check(what, False, f"both raise {last_line(wrong)}: nothing was compared")
        how = self.differ(theirs, ours, exact) if wrong is None else ""
        if not how:
            how = self.changed(values, ours)
        if not how and expected == "hit" and counted != {"hit": 1}:
            how = f"the kernel did not serve it: {counted}"
        if not how and expected != "hit" and counted.get("hit"):
            how = "the kernel served what it was not certified for"
        if how:
            return self.check(what, False, how)
        served = ", ".join(counted) or "the original's checks"
        return self.check(
            what,
            True,
            served + (f"; both raise {last_line(wrong)}" if wrong else f"; {self.apart(theirs, ours)}"),
        )

    def tolerance(self, argument):
        said = self.operator.described["tolerance"][self.operator.dtype]
        return said["atol"], said["rtol"]

    def differ(self, theirs, ours, exact):
        """What is wrong with the outputs; nothing if nothing is."""
        import torch

        for argument in self.operator.arrays:
            name = argument["name"]
            if name not in self.operator.written:
                continue
            one, other = theirs[name].double(), ours[name].double()
            same = (one == other) | (one.isnan() & other.isnan())
            if exact:
                near = same
            else:
                atol, rtol = self.tolerance(argument)
                finite = one.isfinite() & other.isfinite()
                near = same | (finite & ((one - other).abs() <= atol + rtol * one.abs()))
            if not bool(near.all()):
                place = int(torch.nonzero(~near.flatten())[0])
                pair = one.flatten()[place].item(), other.flatten()[place].item()
                wrong = f"{int((~near).sum())} of {near.numel()} elements differ"
                return f"{name}: {wrong}; the first, {place}, is {pair[0]:.6g} and {pair[1]:.6g}"
        return ""

    def apart(self, theirs, ours):
        import torch

        same = all(
            torch.equal(theirs[name].view(torch.uint8), ours[name].view(torch.uint8))
            for name in self.operator.written
        )
        return "the same bits" if same else "within the tolerance"

    def changed(self, values, after):
        import torch

        for name in self.operator.read:
            if not torch.equal(values[name].view(torch.uint8), after[name].view(torch.uint8)):
                return f"{name} is an input and was changed"
        return ""

    def all(self):
        """Every check; each gets arguments of its own."""
        described, make = self.operator.described, self.operator.values
        shapes = [shape for shape in described["validation"] if self.operator.is_certified(shape)]
        if not shapes:
            self.check("outputs on shapes of validation", False, "no shape of it has a certified size")
        for place, shape in enumerate(shapes):
            self.both(make(shape, 1000 + place), f"outputs on {said(shape)}")
        if shapes:
            self.edges(max(shapes, key=lambda shape: shape.get("tokens", 0)))
            self.streams(shapes[min(1, len(shapes) - 1)])

    def edges(self, shape):
        make = self.operator.values
        for rows in (0, 1, 3):
            few = dict(shape, tokens=rows)
            self.both(
                make(few, 2000 + rows),
                f"{rows} rows ({said(few)})",
                "hit" if self.operator.is_certified(few) else "original",
            )
        for name, axis in self.operator.kernel["axes"].items():
            size = max(axis["values"]) - 8 if "values" in axis else axis["most"] + 1
            if "values" in axis and size in axis["values"]:
                continue
            other = dict(shape, **{name: size})
            self.both(make(other, 2100), f"{said(other)} was not certified", "original", exact=True)
            if "values" in axis:
                odd = dict(shape, **{name: min(axis["values"]) + 4})
                self.both(make(odd, 2101), f"{said(odd)} is no multiple of 8", "original", exact=True)
        self.misaligned(shape)
        if "s_a" in shape or any(a["name"] == "s_a" for a in self.operator.arrays):
            self.infinite(shape)

    def misaligned(self, shape):
        """Arrays that begin 16 bytes after a multiple of 256."""
        values = self.operator.values(shape, 2200)
        theirs = {k: shifted(v) if hasattr(v, "clone") else v for k, v in values.items()}
        ours = {k: shifted(v) if hasattr(v, "clone") else v for k, v in values.items()}
        wrong = self.call(theirs, ours=False)
        raised, counted = self.served(ours)
        how = "" if (wrong is None) == (raised is None) else "one raised and the other did not"
        how = how or (self.differ(theirs, ours, exact=True) if wrong is None else "")
        how = how or ("the kernel served it" if counted.get("hit") else "")
        self.check("arrays 16 bytes off are left to the original", not how, how or ", ".join(counted))

    def infinite(self, shape):
        """Plus infinity on one side and minus infinity on the other; never on both sides of one place."""
        import torch

        values = self.operator.values(shape, 2300)
        a, b = values["s_a"], values["s_b"]
        place = torch.arange(a.numel(), device=a.device).view(a.shape) % 8
        a.nan_to_num_(neginf=0.5)
        a[place == 1], a[place == 3] = math.inf, -math.inf
        b[place == 5], b[place == 6] = math.inf, -math.inf
        self.both(values, "infinite log-sum-exps of either sign")

    def streams(self, shape):
        """On another stream, and in a graph that is replayed on other inputs."""
        import torch

        first, second = self.operator.values(shape, 2400), self.operator.values(shape, 2401)
        theirs, ours = copied(first), copied(first)
        self.call(theirs, ours=False)
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            raised, counted = self.served(ours)
        how = last_line(raised) if raised else self.differ(theirs, ours, exact=False)
        how = how or ("" if counted == {"hit": 1} else f"the kernel did not serve it: {counted}")
        self.check("on another stream", not how, how)

        theirs, ours = copied(second), copied(first)
        self.call(theirs, ours=False)
        before = self.counted().get("hit", 0)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self.function(*self.operator.ordered(ours), **self.operator.fixed())
        hit = self.counted().get("hit", 0) > before
        for name, value in second.items():
            if hasattr(value, "clone"):
                ours[name].copy_(value)
        graph.replay()
        torch.cuda.synchronize()
        how = self.differ(theirs, ours, exact=False) or (
            "" if hit else "the kernel did not serve the capture"
        )
        self.check("captured in a graph, replayed on other inputs", not how, how)


def shown():
    """Lets what went wrong on the GPU show: a launch that was refused is told by the next one too, if nobody asked."""
    import torch

    torch.zeros(1, device="cuda")
    torch.cuda.synchronize()


def shifted(tensor):
    """A copy that begins 16 bytes after a multiple of 256."""
    import torch

    room = torch.empty(tensor.numel() + 64, dtype=tensor.dtype, device=tensor.device)
    shift = 16 // tensor.element_size()
    return room[shift : shift + tensor.numel()].view(tensor.shape).copy_(tensor)


def said(shape):
    """A shape in words."""
    return ", ".join(f"{name} {value:g}" for name, value in shape.items())
