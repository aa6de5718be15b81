"""Which calls was a kernel certified for, and how often was it used?"""

import atexit
import collections
import json
import logging
import os
import pathlib
import re
import threading
import time

HERE = pathlib.Path(__file__).parent
SWAP = json.loads((HERE / "swap.json").read_text())
HIT = "hit"
# How often the counters are kept while the process runs.
KEPT_EVERY_S = 1.0
keeping = threading.Lock()
logger = logging.getLogger(__name__)
# How tensors name the types of swap.json.
TYPES = {
    "bf16": "torch.bfloat16",
    "fp16": "torch.float16",
    "f32": "torch.float32",
    "i32": "torch.int32",
    "i64": "torch.int64",
    "e4m3": "torch.float8_e4m3fn",
}
counted = collections.Counter()


def count(kernel, what):
    counted[(kernel["operator"], kernel["dtype"], what)] += 1


def counters():
    """By operator and type: how many calls the kernel served (hit), and how many the original served, by reason."""
    told = {}
    for kernel in SWAP["kernels"]:
        told.setdefault(kernel["operator"], {})[kernel["dtype"]] = {HIT: 0}
    for (operator, dtype, what), times in list(counted.items()):
        told.setdefault(operator, {}).setdefault(dtype, {})[what] = times
    return told


def switched_on(operator, said=None):
    """WARPSMITH_SGLANG: off, on (as when it is not set), or the operators to swap, with commas."""
    said = os.environ.get("WARPSMITH_SGLANG", "on") if said is None else said
    chosen = {part.strip() for part in said.split(",") if part.strip()}
    if chosen & {"off", "0", "none"}:
        return False
    return not chosen or bool(chosen & {"on", "1", "all", operator})


def as_constrained():
    """WARPSMITH_SGLANG_SHAPES=constraints: every shape that the operator's constraints admit, not only the certified."""
    return os.environ.get("WARPSMITH_SGLANG_SHAPES", "certified") == "constraints"


class Switch:
    """Ours or the original, for a comparison in one process."""

    ours = True


def capability_of(device):
    import torch

    return tuple(torch.cuda.get_device_capability(device))


class Guard:
    """Says of a call's arguments, by name, why the original must serve it; None where the kernel may."""

    def __init__(self, kernel, capability=capability_of, constrained=None, device="cuda"):
        self.kernel = kernel
        self.device = device
        self.capability = capability
        self.constrained = as_constrained() if constrained is None else constrained
        self.tensors = kernel["arguments"]
        self.known = {}

    def refuses(self, arguments):
        if not Switch.ours:
            return "switched off"
        spans, key = [], []
        for name in self.tensors:
            tensor = arguments.get(name)
            if not hasattr(tensor, "data_ptr"):
                return "arguments"
            key.append((tensor.shape, tensor.stride(), tensor.dtype, tensor.device))
        key = tuple(key)
        why = self.known.get(key, HIT)
        if why is HIT:
            why = self.judge(arguments)
            if len(self.known) < 4096:
                self.known[key] = why
        return why or self.misplaced(arguments, spans)

    def judge(self, arguments):
        """What holds for all calls with these shapes, types and devices."""
        devices = {str(arguments[name].device) for name in self.tensors}
        first = arguments[next(iter(self.tensors))].device
        if (
            len(devices) > 1
            or first.type != self.device
            or self.capability(first) != tuple(self.kernel["capability"])
        ):
            return "device"
        for name, declared in self.tensors.items():
            if str(arguments[name].dtype) != TYPES[declared["dtype"]]:
                return "dtype"
            if len(arguments[name].shape) != len(declared["shape"]):
                return "rank"
            if not arguments[name].is_contiguous():
                return "layout"
        axes = self.axes(arguments)
        if axes is None:
            return "shape"
        return self.outside(axes)

    def axes(self, arguments):
        """The sizes by name, if the shapes agree with one another."""
        axes, rest = {}, []
        for name, declared in self.tensors.items():
            for size, said in zip(arguments[name].shape, declared["shape"]):
                if said.isidentifier():
                    if axes.setdefault(said, int(size)) != int(size):
                        return None
                else:
                    rest.append((said, int(size)))
        agrees = all(value_of(said, axes) == size for said, size in rest)
        return axes if agrees else None

    def outside(self, axes):
        """Whether these sizes are beyond what the kernel may be called with."""
        for constraint in self.kernel["constraints"]:
            if not value_of(constraint, axes):
                return "constraint"
        for name, size in axes.items():
            certified = self.kernel["axes"][name]
            if size < 1:
                return f"axis {name}"
            if self.constrained:
                continue
            values = certified.get("values")
            if size not in values if values else not certified["least"] <= size <= certified["most"]:
                return f"axis {name}"
        return None

    def misplaced(self, arguments, spans):
        """Where arrays lie is another matter with each call."""
        alignment = self.kernel["alignment"]
        for name in self.tensors:
            tensor = arguments[name]
            start = tensor.data_ptr()
            if start % alignment:
                return "alignment"
            end = start + tensor.numel() * tensor.element_size()
            for other_start, other_end in spans:
                if start < other_end and other_start < end:
                    return "overlap"
            spans.append((start, end))
        return None


def value_of(expression, axes):
    """An expression of swap.json, in whole numbers."""
    if not re.fullmatch(r"[\w\s+*/%()<>=!-]*", expression):
        raise ValueError(f"{HERE / 'swap.json'}: not an expression of sizes: {expression!r}")
    return eval(expression.replace("/", "//"), {"__builtins__": {}}, dict(axes))


def keep_counters():
    """In the folder WARPSMITH_SGLANG_COUNTERS, if it is set, under this process's number; whole, whenever it is read."""
    from . import compiled, library

    folder = os.environ.get("WARPSMITH_SGLANG_COUNTERS")
    if folder and (counted or library.loaded or any(one.counts() for _, one in compiled.counting)):
        pathlib.Path(folder).mkdir(parents=True, exist_ok=True)
        place = pathlib.Path(folder) / f"{HERE.name}-{os.getpid()}.json"
        # One at a time, so that what was counted later stays; whoever was forked meanwhile waits in vain, but not for ever.
        if not keeping.acquire(timeout=KEPT_EVERY_S):
            return
        try:
            text = json.dumps(all_counters())
            if not place.exists() or place.read_text() != text:
                partly = place.with_suffix(".partly")
                partly.write_text(text)
                partly.replace(place)
        finally:
            keeping.release()


def keep_counters_now_and_then():
    """SGLang's engine kills its processes when it is shut down, which then come to no end of their own."""
    if os.environ.get("WARPSMITH_SGLANG_COUNTERS"):
        threading.Thread(target=again_and_again, daemon=True).start()


def again_and_again():
    while True:
        time.sleep(KEPT_EVERY_S)
        try:
            keep_counters()
        except Exception:
            logger.exception("warpsmith: counters could not be kept; the next ones may be")


def all_counters():
    """Those of the libraries and of the guards in C++ too."""
    from . import compiled, library

    return compiled.added_to(library.added_to(counters()))


atexit.register(keep_counters)
