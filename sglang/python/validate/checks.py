"""Does the kernel give what the original gives, where it may serve and where it must not?"""

import contextlib
import math
import traceback

from calls import copied, refilled, settled
from told import last_line


class Checks:
    """Of one operator and type, on one plug-in."""

    def __init__(self, told, operator, package):
        self.told, self.operator, self.package = told, operator, package
        self.caller = operator.caller(package)

    def attempt(self, what, look, *given, **more):
        """One check: `look` says whether it passed, and how. One that breaks off has failed, and the others go on."""
        try:
            passed, how = look(*given, **more)
        except Exception as error:
            traceback.print_exc()
            passed, how = False, last_line(error)
        self.told.checked(self.operator.name, self.operator.dtype, what, passed, how)

    def call(self, values, ours):
        """Calls the operator; says what it raised, if it did."""
        self.package.use(ours)
        try:
            self.caller(values)
            settled(self.operator.device)
        except Exception as error:
            with contextlib.suppress(Exception):
                settled(self.operator.device)
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

    def alike(self, values, expected="hit", exact=False):
        """The original and the kernel on the same arguments: every output, every input, and who served."""
        theirs, ours = copied(values), copied(values)
        wrong = self.call(theirs, ours=False)
        raised, counted = self.served(ours)
        if (wrong is None) != (raised is None):
            told = [last_line(e) if e else "nothing" for e in (wrong, raised)]
            return False, f"the original raised {told[0]}, with the kernel it raised {told[1]}"
        if wrong is not None and expected == "hit":
            return False, f"both raise {last_line(wrong)}: nothing was compared"
        how = self.differ(theirs, ours, exact) if wrong is None else ""
        how = how or self.changed(values, ours)
        if expected == "hit":
            how = how or self.not_served(counted)
        elif not how and counted.get("hit"):
            how = "the kernel served what it was not certified for"
        if how:
            return False, how
        served = ", ".join(counted) or "the original's checks"
        return True, served + (f"; both raise {last_line(wrong)}" if wrong else f"; {self.apart(theirs, ours)}")

    def not_served(self, counted):
        """Why the kernel did not serve a call that it must serve; where nothing was counted, what was before tells."""
        return "" if counted == {"hit": 1} else f"the kernel did not serve it: {counted or self.counted()}"

    def tolerance(self):
        said = self.operator.described["tolerance"][self.operator.dtype]
        return said["atol"], said["rtol"]

    def differ(self, theirs, ours, exact):
        """What is wrong with the outputs; nothing if nothing is. What must be exact must have the same bits."""
        import torch

        import tolerance

        for name in self.operator.written:
            one, other = theirs[name].flatten(), ours[name].flatten()
            if exact:
                wrong = tolerance.bits(one) != tolerance.bits(other)
            else:
                wrong = tolerance.wrong(one, other, *self.tolerance())
            if bool(wrong.any()):
                place = int(torch.nonzero(wrong)[0])
                pair = f"{one[place].item():.6g} and {other[place].item():.6g}"
                count = f"{int(wrong.sum())} of {wrong.numel()} elements differ"
                return f"{name}: {count}; the first, {place}, is {pair}"
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
        shapes = [
            shape for shape in self.operator.described["validation"] if self.operator.is_certified(shape)
        ]
        if not shapes:
            nothing = False, "no shape of it has a certified size"
            return self.attempt("outputs on shapes of validation", lambda: nothing)
        for place, shape in enumerate(shapes):
            self.attempt(f"outputs on {said(shape)}", self.on, shape, 1000 + place)
        self.edges(max(shapes, key=lambda shape: shape.get("tokens", 0)))
        if self.operator.device == "cuda":
            shape = shapes[min(1, len(shapes) - 1)]
            self.attempt("on another stream", self.streamed, shape)
            self.attempt("captured in a graph, replayed on other inputs", self.captured, shape)

    def on(self, shape, seed, expected="hit", exact=False):
        return self.alike(self.operator.values(shape, seed), expected, exact)

    def edges(self, shape):
        for rows in (0, 1, 3):
            few = dict(shape, tokens=rows)
            expected = "hit" if self.operator.is_certified(few) else "original"
            self.attempt(f"{rows} rows ({said(few)})", self.on, few, 2000 + rows, expected)
        for name, axis in self.operator.kernel["axes"].items():
            sizes = [max(axis["values"]) - 8, min(axis["values"]) + 4] if "values" in axis else [axis["most"] + 1]
            for size in sizes:
                other = dict(shape, **{name: size})
                if size > 0 and not self.operator.is_certified(other):
                    what = f"{said(other)} was not certified"
                    self.attempt(what, self.on, other, 2100, "original", exact=True)
        self.attempt("arrays 16 bytes off are left to the original", self.misaligned, shape)
        if any(array["name"] == "s_a" for array in self.operator.arrays):
            self.attempt("infinite log-sum-exps of either sign", self.infinite, shape)

    def misaligned(self, shape):
        """Arrays that begin 16 bytes after a multiple of 256."""
        values = self.operator.values(shape, 2200)
        theirs, ours = (
            {name: shifted(value) if hasattr(value, "clone") else value for name, value in values.items()}
            for _ in range(2)
        )
        wrong = self.call(theirs, ours=False)
        raised, counted = self.served(ours)
        if counted.get("hit"):
            return False, "the kernel served it"
        if (wrong is None) != (raised is None):
            return False, "one raised and the other did not"
        how = "" if wrong else self.differ(theirs, ours, exact=True)
        return not how, how or ", ".join(counted) + (f"; both raise {last_line(wrong)}" if wrong else "")

    def infinite(self, shape):
        """Plus infinity on one side and minus infinity on the other; never on both sides of one place."""
        import torch

        values = self.operator.values(shape, 2300)
        a, b = values["s_a"], values["s_b"]
        place = torch.arange(a.numel(), device=a.device).view(a.shape) % 8
        for side in (a, b):
            side[side.isinf()] = 0.5
        a[place == 1], a[place == 3] = math.inf, -math.inf
        b[place == 5], b[place == 6] = math.inf, -math.inf
        return self.alike(values)

    def streamed(self, shape):
        """On a stream that fills the arguments late: a kernel that runs on another one reads what was there before."""
        import torch

        late, early = self.operator.values(shape, 2400), self.operator.values(shape, 2401)
        theirs, ours = copied(late), copied(early)
        wrong = self.call(theirs, ours=False) or self.served(copied(early))[0]
        if wrong:
            raise wrong
        busy = torch.empty(1 << 30, dtype=torch.uint8, device=self.operator.device)
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            # Some milliseconds, in which the host gets to the call.
            for _ in range(30):
                busy.zero_()
            refilled(ours, late)
            raised, counted = self.served(ours)
        if raised:
            raise raised
        how = self.differ(theirs, ours, exact=False) or self.changed(late, ours) or self.not_served(counted)
        return not how, how

    def captured(self, shape):
        """In a graph, as servers call it: warmed up before, captured on a stream that torch takes for it."""
        import torch

        first, second = self.operator.values(shape, 2500), self.operator.values(shape, 2501)
        theirs, ours = copied(second), copied(first)
        wrong = self.call(theirs, ours=False) or self.served(ours)[0]
        if wrong:
            raise wrong
        before = self.counted()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self.caller(ours)
        counted = {what: times - before.get(what, 0) for what, times in self.counted().items()}
        refilled(ours, second)
        graph.replay()
        settled(self.operator.device)
        how = self.differ(theirs, ours, exact=False) or self.changed(second, ours)
        how = how or self.not_served({what: times for what, times in counted.items() if times})
        return not how, how


def shifted(tensor):
    """A copy that begins 16 bytes after a multiple of 256."""
    import torch

    room = torch.empty(tensor.numel() + 64, dtype=tensor.dtype, device=tensor.device)
    shift = 16 // tensor.element_size()
    return room[shift : shift + tensor.numel()].view(tensor.shape).copy_(tensor)


def said(shape):
    """A shape in words."""
    return ", ".join(f"{name} {value:g}" for name, value in shape.items())
