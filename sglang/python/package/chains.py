"""How does one kernel get into the place of two that the framework calls one after another?

At the layers that swap.json names, whose method does nothing with the arrays between the two calls but hand them on. The
first call is put off; at the second one, the kernel does both. What the kernel was not certified for is done as the
framework does it: the first function, then the second.

Whether a layer's two calls do follow one another depends on how the server was started. So each layer is watched first:
only where the second function was seen to get what the first one had, for arrays of this kind, is a call put off.
"""

import importlib
import logging
import weakref

from . import compiled, guard, swap

logger = logging.getLogger(__name__)
# By operator and type.
placed = {}


class Broken(RuntimeError):
    """A call was put off, and what must follow it did not: results would be wrong."""


class Chain:
    """One kernel, and the layer that is under way."""

    def __init__(self, kernel, watch=None):
        self.kernel = kernel
        self.said = kernel["chain"]
        self.watch = watch or guard.Guard(kernel)
        self.fast = compiled.watching(kernel, kernel["passed"], self.watch)
        # The layer that is under way, how many first calls it made, and the last of them while its second one is to come.
        self.layer, self.place, self.first = None, 0, None
        self.seen = weakref.WeakKeyDictionary()
        self.ours = None

    def around_layer(self, original, *args, **keywords):
        if compiling() or not args:
            return original(*args, **keywords)
        outer = self.layer, self.place, self.first
        self.layer, self.place, self.first = args[0], 0, None
        try:
            told = original(*args, **keywords)
            self.none_is_open()
            return told
        finally:
            self.layer, self.place, self.first = outer

    def around_first(self, original, *args, **keywords):
        given = self.given(0, args, keywords)
        if self.layer is None or given is None or compiling():
            return original(*args, **keywords)
        self.none_is_open()
        self.place += 1
        kind = self.place, *self.kind(given)
        put_off = kind in self.seen.get(self.layer, ()) and guard.Switch.ours
        self.first = First(given, kind, lambda: original(*args, **keywords), put_off)
        if not put_off:
            return self.carried_out(self.first)
        return None

    def around_second(self, original, *args, **keywords):
        first, self.first = self.first, None
        if first is None:
            return original(*args, **keywords)
        given = self.given(1, args, keywords)
        follows = given is not None and all(one(first.given[name], given[name]) for name in self.said["handed_over"])
        if not follows:
            self.none_is_open(first)
            return original(*args, **keywords)
        # The first one's view of an array that both have is the one with an axis for each size.
        arguments = {**given, **first.given}
        why = self.refuses(arguments) if guard.Switch.ours else None
        if not first.put_off:
            if not why:
                self.seen.setdefault(self.layer, set()).add(first.kind)
            elif why != "dtype":
                # Of kernels of several types, the one of the call's type says why.
                guard.count(self.kernel, why)
            return original(*args, **keywords)
        why = why or self.absent()
        guard.count(self.kernel, why or guard.HIT)
        if why:
            self.carried_out(first)
            return original(*args, **keywords)
        return self.ours(*[arguments[name] for name in self.kernel["passed"]])

    def none_is_open(self, first=None):
        """What was put off is too late by now: whatever came between may have read what it had not written yet."""
        first = first or self.first
        if first and first.put_off:
            self.first = None
            guard.count(self.kernel, "order")
            raise Broken(
                f"warpsmith: {self.kernel['operator']}: a call of this chain was put off, and the one that was seen to "
                "follow it did not; start the server with WARPSMITH_SGLANG=off"
            )

    def carried_out(self, first):
        """The framework's own first call. It may go to another of the functions here: that is the same call, counted once."""
        layer, self.layer = self.layer, None
        try:
            return first.done()
        finally:
            self.layer = layer

    def given(self, step, args, keywords):
        """The arguments by name; None where the call is another one than what was taken out."""
        said = self.said["steps"][step]
        if len(args) > len(said["parameters"]):
            return None
        given = dict(zip(said["parameters"], args), **keywords)
        for name, of in said.get("last_axis", {}).items():
            size = given.pop(name, 0)
            if size and size != getattr(given.get(of), "shape", (None,))[-1]:
                return None
        only = said.get("only", {})
        if any(given.pop(name, value) != value for name, value in only.items()):
            return None
        wanted = set(said["parameters"]) - set(only) - set(said.get("none", []))
        # An optional argument that is given as None counts as left out.
        given = {name: value for name, value in given.items() if value is not None or name in wanted}
        return given if set(given) == wanted else None

    def kind(self, given):
        """What decides which way the framework goes: types, and sizes, the number of tokens among them."""
        arrays = [value for value in given.values() if hasattr(value, "data_ptr")]
        return tuple((str(one.dtype), tuple(one.shape)) for one in arrays)

    def refuses(self, arguments):
        if self.fast:
            return self.fast.refuses(*[arguments[name] for name in self.kernel["passed"]])
        return self.watch.refuses(arguments)

    def absent(self):
        """Builds the kernel at its first call; why there is none, if there is none."""
        key = self.kernel["operator"], self.kernel["dtype"]
        if self.ours is None and key not in swap.absent:
            try:
                self.ours = built(self.kernel)
            except Differs as wrong:
                logger.warning("warpsmith: %s: %s; the original stays", self.kernel["operator"], wrong)
                guard.count(self.kernel, wrong.why)
                swap.absent.add(key)
            except Exception:
                logger.exception("warpsmith: %s: the kernel cannot be compiled here; the original stays", key)
                guard.count(self.kernel, "not built")
                swap.absent.add(key)
        return "not in place" if self.ours is None else None


class First:
    """The first call of a chain, and whether it was put off."""

    def __init__(self, given, kind, done, put_off):
        self.given, self.kind, self.done, self.put_off = given, kind, done, put_off


class Differs(RuntimeError):
    def __init__(self, why, file):
        super().__init__(f"the installed {file} is not the one that this chain was taken out with")
        self.why = why


def one(array, other):
    """Whether two views are of the same array: the same bytes, in the same order."""
    return (
        array.data_ptr() == other.data_ptr()
        and array.dtype == other.dtype
        and array.numel() == other.numel()
        and array.is_contiguous()
        and other.is_contiguous()
    )


def compiling():
    import torch

    return torch.compiler.is_compiling()


def built(kernel):
    load_jit = swap.loader()
    other = swap.differs(kernel, load_jit)
    if other:
        raise Differs(*other)
    module = load_jit(
        f"warpsmith_{kernel['candidate'][:12]}",
        cuda_files=[str(guard.HERE / kernel["source"])],
        cuda_wrappers=[("run", kernel["exported"])],
        # What it was certified with: other flags may give other bits.
        extra_cuda_cflags=kernel["flags"],
        extra_include_paths=swap.include_paths(kernel, load_jit, {}),
    )
    return module.run


def targets():
    """Paths, and what stands around them, for the chains that are switched on. Several kernels of one chain differ in type."""
    around = {}
    for kernel in guard.SWAP["kernels"]:
        if "chain" not in kernel or not guard.switched_on(kernel["operator"]):
            continue
        chain = placed[kernel["operator"], kernel["dtype"]] = Chain(kernel)
        steps = kernel["chain"]["steps"]
        paths = [(path, chain.around_layer) for path in kernel["chain"]["layers"]]
        paths += [(path, chain.around_first) for path in steps[0]["functions"]]
        paths += [(path, chain.around_second) for path in steps[1]["functions"]]
        for path, hook in paths:
            if there(path):
                around.setdefault(path, []).append(hook)
    return around


def there(path):
    """Whether the installed framework has it; what it has not is not hooked."""
    parts = path.split(".")
    for count in range(len(parts) - 1, 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:count]))
        except ImportError:
            continue
        for name in parts[count:]:
            found = getattr(found, name, None)
        return found is not None
    return False
