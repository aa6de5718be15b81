"""Does the guard in C++ decide as the one in Python, for everything that it must see? On real tensors, in the processor's memory.

Ends with an AssertionError if not; with "passed over" where it cannot be built. `times` prints what a call costs.
"""

import json
import random
import statistics
import sys
import time

import torch

from warpsmith_sglang_silu_and_mul import compiled, guard, use

KERNEL = guard.SWAP["kernels"][0]
PASSED = KERNEL["passed"]
FIXED = [(2, "silu")]
watch = lambda: guard.Guard(KERNEL, capability=lambda device: (9, 0), device="cpu")


def array(shape, dtype=torch.bfloat16, off=0):
    """Of this shape, at a multiple of 256 bytes and so many more."""
    size = torch.Size(shape).numel()
    width = torch.empty((), dtype=dtype).element_size()
    raw = torch.zeros(size * width + 1024, dtype=torch.uint8)
    start = -raw.data_ptr() % 256 + off
    return raw[start : start + size * width].view(dtype).view(shape)


def cases():
    """What is asked, and what must be said."""
    input, out = array((16, 8192)), array((16, 4096))
    yield "hit", (input, out, "silu"), None
    yield "other tokens", (array((300, 8192)), array((300, 4096)), "silu"), None
    yield "shape", (array((16, 8192)), array((17, 4096)), "silu"), "shape"
    yield "certified sizes", (array((16, 4096)), array((16, 2048)), "silu"), "axis hidden"
    yield "too many", (array((2049, 8192)), array((2049, 4096)), "silu"), "axis tokens"
    yield "rank", (array((1, 16, 8192)), out, "silu"), "rank"
    yield "dtype", (array((16, 8192), torch.float16), out, "silu"), "dtype"
    yield "dtype of the other", (input, array((16, 4096), torch.float16), "silu"), "dtype"
    yield "stride", (array((8192, 16)).t(), out, "silu"), "layout"
    yield "gaps between rows", (array((16, 16384))[:, :8192], out, "silu"), "layout"
    yield "device", (torch.empty((16, 8192), dtype=torch.bfloat16, device="meta"), out, "silu"), "device"
    yield "devices", (input.to("meta"), out.to("meta"), "silu"), "device"
    yield "alignment", (array((16, 8192), off=16), out, "silu"), "alignment"
    yield "in place", (input, input.view(-1)[: 16 * 4096].view(16, 4096), "silu"), "overlap"
    yield "the last row", (input, input.view(-1)[16 * 8192 - 2048 :].new_empty(0), "silu"), "rank"
    over = array((3 * 16, 4096))
    yield "one after the other", (over[:32].view(16, 8192), over[32:], "silu"), None
    yield "one row shared", (over[:32].view(16, 8192), over[31:47], "silu"), "overlap"
    yield "a parameter", (torch.nn.Parameter(input, requires_grad=False), out, "silu"), None
    yield "none", (None, out, "silu"), "arguments"
    yield "a number", (3, out, "silu"), "arguments"


def decided():
    choose, log, inside = chooser()
    asked = list(cases())
    for name, arguments, why in asked:
        assert watch().refuses(dict(zip(PASSED, arguments))) == why, name
    draw = random.Random(3)
    # In any order, since what was remembered of one must not be said of another.
    for name, arguments, why in asked + draw.choices(asked, k=400):
        choose(*arguments)
        assert log[-1] == ("original" if why else "ours"), name
        assert inside.refuses(*arguments) == why, name
    counted = inside.counts()
    assert set(counted) == {"hit"} | {why for _, _, why in asked if why}, counted
    assert sum(counted.values()) == len(asked) + 400, counted
    input, out, _ = asked[0][1]
    choose(input, out, "gelu")
    choose(input, out, "".join(["si", "lu"]))
    assert log[-2:] == ["original", "ours"], log[-2:]
    assert sum(inside.counts().values()) == len(asked) + 401, "another operator's call is not counted"
    choose(input, out)
    assert log[-1] == "original" and inside.counts()["arguments"] == counted["arguments"] + 1
    use(False)
    choose(input, out, "silu")
    use(True)
    assert log[-1] == "original" and inside.counts()["switched off"] == 1
    other = compiled.watching(KERNEL, PASSED, watch())
    other.set_ours(False)
    assert (other.refuses(input, out, "silu"), inside.refuses(input, out, "silu")) == ("switched off", None)
    compiled.counting.pop()
    told = guard.all_counters()["silu_and_mul"]["bf16"]
    assert told["hit"] == inside.counts()["hit"], told


def chooser():
    log = []
    record = lambda who: lambda *args: log.append(who)
    choose = compiled.chooser(KERNEL, PASSED, FIXED, watch(), record("ours"), record("original"))
    return choose, log, compiled.counting[-1][1]


def hooked():
    log, absent = [], set()
    said = {"parameters": ["input", "out", "extra"], "passed": ["out", "input", "extra"]}
    half = dict(KERNEL, dtype="fp16", arguments={name: dict(one, dtype="fp16") for name, one in KERNEL["arguments"].items()})
    guards = [guard.Guard(kernel, capability=lambda device: (9, 0), device="cpu") for kernel in (half, KERNEL)]
    find = lambda: lambda *args: log.append(args)
    watched = [(kernel, ("k", kernel["dtype"]), said, one, find) for kernel, one in zip((half, KERNEL), guards)]
    hook = compiled.hook(watched, absent)
    of_half, of_brain = (one for _, one in compiled.counting[-2:])
    original = lambda *args, **keywords: log.append((args, keywords))
    input, out = array((16, 8192)), array((16, 4096))
    hook(original, input, out=out)
    assert log[-1][0] is out and log[-1][1] is input and len(log[-1]) == 2, "what was not given is not passed on"
    hook(original, out=out, input=input, extra=7)
    assert log[-1][2] == 7
    hook(original, input, out, unheard=1)
    assert log[-1] == ((input, out), {"unheard": 1}) and of_brain.counts() == {"hit": 2}
    assert of_half.counts() == {"arguments": 1}
    hook(original, array((17, 8192)), out)
    assert of_brain.counts()["shape"] == 1, "the kernel of the call's type says why"
    absent.add(("k", "bf16"))
    hook(original, input, out)
    assert of_brain.counts() == {"hit": 2, "shape": 1, "not in place": 1}


def broken():
    """A judge that fails is an error of the call, and no verdict."""
    one = compiled.module().Guard(lambda *arrays: 1 // 0, ("a",), ("a",), 256)
    for _ in range(2):
        try:
            one.refuses(array((1,)))
        except ZeroDivisionError:
            continue
        raise AssertionError("no error")


def cost(call, *arguments, rounds=60, calls=5000):
    """The median over rounds, in ns a call, with what the loop costs."""
    samples = []
    for _ in range(rounds):
        start = time.perf_counter_ns()
        for _ in range(calls):
            call(*arguments)
        samples.append((time.perf_counter_ns() - start) / calls)
    return statistics.median(samples), min(samples)


def times():
    from warpsmith_sglang_silu_and_mul import functions, swap

    nothing = lambda *args: None
    arguments = (array((16, 8192)), array((16, 4096)), "silu")
    flat = (arguments[0], arguments[1])
    own = compiled.module().Guard(lambda *a: None, ("input", "out"), ("input", "out"), 256)
    told = {"bare call of Python": cost(nothing, *arguments)}
    kept, compiled.chooser = compiled.chooser, lambda *args: None
    guard.Guard.__init__.__defaults__ = (lambda device: (9, 0), None, "cpu")
    told["the guard in Python, with the call"] = cost(swap.guarded(KERNEL, nothing, nothing), *arguments)
    compiled.chooser = kept
    told["the guard in C++, with the call"] = cost(swap.guarded(KERNEL, nothing, nothing), *arguments)
    told["the guard in C++ alone"] = cost(own.refuses, *flat)
    hook = {"path": "x", "parameters": ["input", "out"], "passed": ["input", "out"], "through": ["builtins.id"]}
    functions.function = lambda paths: nothing
    if not hasattr(torch, "compiler"):
        torch.compiler = type("compiler", (), {"is_compiling": staticmethod(lambda: False)})
    around = functions.around([(KERNEL, hook)])
    told["around a function, in C++, with the call"] = cost(around, nothing, *flat)
    kept, compiled.hook = compiled.hook, lambda *args: None
    around = functions.around([(KERNEL, hook)])
    told["around a function, in Python, with the call"] = cost(around, nothing, *flat)
    compiled.hook = kept
    for what, (median, least) in told.items():
        print(json.dumps({"what": what, "median_ns": round(median, 1), "least_ns": round(least, 1)}))


if compiled.module() is None:
    print("passed over: the guard cannot be built here")
    sys.exit(0)
if sys.argv[1:] == ["times"]:
    times()
    sys.exit(0)
decided()
hooked()
broken()
print("as it says: guarded")
