"""Is an extract the framework's own operator: the same bits, in the same time?

Reads what to compare as JSON from the file that is its argument, and writes what it found as JSON to its standard output.
The extract is a shared object with a C entry; the framework is called through its own Python function. Both get the same
bytes. Times are of CUDA graphs of a hundred calls and more over buffers that do not fit the L2 cache together, one side
after the other in shuffled order; the program says what the samples come to. With --rehearse it compares on the CPU and times nothing, so that no extract passes: for
tests of the comparison.
"""

import ctypes
import importlib
import json
import math
import os
import random
import sys
import types

DTYPES = {"bf16": "bfloat16", "fp16": "float16", "f16": "float16", "f32": "float32", "f64": "float64", "i32": "int32", "i64": "int64", "e4m3": "float8_e4m3fn"}
SCALARS = {"i32": ctypes.c_int32, "i64": ctypes.c_int64, "f32": ctypes.c_float, "f64": ctypes.c_double}
MOST_BYTES = 1 << 30
CALLS = 100
ROUNDS = 41


def fail(what, **more):
    print(json.dumps({"error": what, **more}))
    sys.exit(0)


def without_notebooks():
    """Where there is no IPython, the framework is given an empty one: it imports it and does not use it here."""
    try:
        import IPython.display  # noqa: F401
    except ImportError:
        outer, inner = types.ModuleType("IPython"), types.ModuleType("IPython.display")
        for name in ("HTML", "Image", "display"):
            setattr(inner, name, None)
        outer.display = inner
        sys.modules.update({"IPython": outer, "IPython.display": inner})


def framework(call):
    """The framework's functions in the order in which it calls them, each with its call, and the module of the first."""
    function, module = resolved(call)
    return [(function, call), *((resolved(one)[0], one) for one in call.get("then", []))], module


def resolved(call):
    without_notebooks()
    tried = []
    for name in call["modules"]:
        try:
            module = importlib.import_module(name)
            return getattr(module, call["function"]), name
        except Exception as error:
            tried.append(f"{name}: {type(error).__name__}: {error}")
    fail("the framework cannot be called here: " + "; ".join(tried))


def sized(expression, scalars):
    return int(eval(expression, {"__builtins__": {}}, dict(scalars)))


def holds(constraints, scalars):
    return all(eval(one, {"__builtins__": {}}, dict(scalars)) for one in constraints)


def drawn(spec, count, rng):
    """Shapes from the operator's ranges, one of which is the least of all."""
    cases = []
    while len(cases) < count:
        scalars = {}
        for name, given in spec["draw"].items():
            if len(given) == 1:
                scalars[name] = given[0]
                continue
            low, high, step = given[0], given[1], given[2] if len(given) > 2 else 1
            # Small shapes as often as large ones.
            value = math.exp(rng.uniform(math.log(low), math.log(high)))
            scalars[name] = low if not cases else min(high, max(low, int(value) // step * step))
        if holds(spec["constraints"], scalars):
            cases.append({"name": "x".join(str(v) for v in scalars.values()), "scalars": scalars, "drawn": True})
    return cases


def filled(torch, argument, shape, generator):
    dtype = getattr(torch, DTYPES[argument["dtype"]])
    fill = argument.get("fill") or "poison"
    if fill == "poison":
        count = math.prod(shape) * torch.empty(0, dtype=dtype).element_size()
        return torch.randint(-128, 128, (count,), dtype=torch.int8, device=generator.device, generator=generator).view(dtype).view(shape)
    if fill in ("zeros", "ones"):
        return getattr(torch, fill)(shape, dtype=dtype, device=generator.device)
    (kind, given), = fill.items()
    if kind == "integers":
        return torch.randint(given["low"], given["high"] + 1, shape, dtype=dtype, device=generator.device, generator=generator)
    if kind == "uniform":
        drawn = torch.rand(shape, device=generator.device, generator=generator) * (given["high"] - given["low"]) + given["low"]
        return drawn.to(dtype)
    drawn = torch.randn(shape, device=generator.device, generator=generator) * given["std"] + given["mean"]
    if given.get("minus_infinity"):
        drawn[torch.rand(shape, device=generator.device, generator=generator) < given["minus_infinity"]] = -math.inf
    return drawn.to(dtype)


def arrays(torch, arguments, case, generator):
    """An array for each of these arguments that is one."""
    made = {}
    for argument in arguments:
        if argument.get("shape"):
            shape = [sized(one, case["scalars"]) for one in argument["shape"]]
            made[argument["name"]] = filled(torch, argument, shape, generator)
    return made


def buffers(torch, spec, case, generator, count):
    """So many sets of the arguments' arrays. What a chain's calls alone hand over is one for all: torch's allocator gives
    each call the block that the one before it gave back, and the extract keeps its own."""
    handed_over = arrays(torch, spec.get("between", []), case, generator)
    return [arrays(torch, spec["arguments"], case, generator) | handed_over for _ in range(count)]


def by_framework(function, spec, scalars, values):
    take = lambda name: values[name] if name in values else scalars[name]
    for step, call in function:
        step(*[take(name) for name in call["positional"]], **call.get("keywords", {}))


def by_extract(torch, entry, spec, scalars, values):
    passed = []
    for argument in spec["arguments"]:
        name = argument["name"]
        if name in values:
            passed.append(ctypes.c_void_p(values[name].data_ptr()))
        else:
            passed.append(SCALARS[argument["dtype"]](scalars[name]))
    on_gpu = next(iter(values.values())).is_cuda
    entry(*passed, ctypes.c_void_p(torch.cuda.current_stream().cuda_stream if on_gpu else None))


def bits(torch, tensor):
    return tensor.contiguous().view(torch.uint8)


def compared(torch, function, entry, spec, case, generator):
    """How many bytes of each array differ between the two sides, and which inputs either of them changed."""
    (before,) = buffers(torch, spec, case, generator, 1)
    sides = [{name: value.clone() for name, value in before.items()} for _ in range(2)]
    by_framework(function, spec, case["scalars"], sides[0])
    by_extract(torch, entry, spec, case["scalars"], sides[1])
    if generator.device.type == "cuda":
        torch.cuda.synchronize()
    differ, changed, unwritten = {}, [], []
    for argument in spec["arguments"]:
        name = argument["name"]
        if name not in before:
            continue
        count = int((bits(torch, sides[0][name]) != bits(torch, sides[1][name])).sum())
        if count:
            differ[name] = count
        same = [torch.equal(bits(torch, before[name]), bits(torch, side[name])) for side in sides]
        if argument["transfer"] == "in":
            changed += [f"{name} by the {who}" for who, kept in zip(("framework", "extract"), same) if not kept]
        elif all(same) and before[name].numel():
            unwritten.append(name)
    return differ, changed, unwritten


def graph_of(torch, call, sets, calls):
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for values in sets[:3]:
            call(values)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for at in range(calls):
            call(sets[at % len(sets)])
    return graph


def microseconds(torch, graph, calls):
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    graph.replay()
    end.record()
    end.synchronize()
    return start.elapsed_time(end) * 1e3 / calls


def timed(torch, function, entry, spec, case, generator, rng):
    first = arrays(torch, spec["arguments"], case, generator)
    size = sum(value.numel() * value.element_size() for value in first.values())
    cache = getattr(torch.cuda.get_device_properties(0), "L2_cache_size", 50 << 20)
    count = max(2, min(400, -(-3 * cache // size), MOST_BYTES // size or 1))
    del first
    sets = buffers(torch, spec, case, generator, count)
    calls = max(CALLS, count)
    scalars = case["scalars"]
    graphs = [
        graph_of(torch, lambda values: by_framework(function, spec, scalars, values), sets, calls),
        graph_of(torch, lambda values: by_extract(torch, entry, spec, scalars, values), sets, calls),
    ]
    for graph in graphs * 2:
        microseconds(torch, graph, calls)
    times = [[], []]
    for _ in range(ROUNDS):
        order = [0, 1]
        rng.shuffle(order)
        for side in order:
            times[side].append(microseconds(torch, graphs[side], calls))
    return {
        "samples_us": {"framework": times[0], "extract": times[1]},
        "calls": calls,
        "buffers": count,
        "bytes": size,
    }


def versions(torch):
    from importlib import metadata

    found = {"torch": torch.__version__, "python": sys.version.split()[0]}
    for name in ("sglang", "sglang-kernel", "sgl-kernel", "apache-tvm-ffi", "flashinfer-python"):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            pass
    return found


def main():
    with open(sys.argv[1]) as file:
        spec = json.load(file)
    # What the framework prints is not ours to read.
    told = os.dup(1)
    os.dup2(2, 1)
    import torch

    def say(found):
        os.write(told, (json.dumps(found) + "\n").encode())

    def refuse(what, **more):
        say({"error": what, **more})
        os._exit(0)

    globals()["fail"] = refuse
    rehearsed = "--rehearse" in sys.argv
    if not rehearsed and not torch.cuda.is_available():
        refuse("torch sees no GPU here")
    function, module = framework(spec["call"])
    library = ctypes.CDLL(spec["library"], mode=os.RTLD_NOW | os.RTLD_LOCAL | os.RTLD_DEEPBIND)
    entry = getattr(library, spec["entry"])
    entry.restype = None
    seed = random.SystemRandom().getrandbits(48)
    rng, generator = random.Random(seed), torch.Generator(device="cpu" if rehearsed else "cuda").manual_seed(seed)
    found = []
    for case in spec["cases"] + drawn(spec, spec["drawn"], rng):
        one = {"name": case["name"], "scalars": case["scalars"], "drawn": case.get("drawn", False)}
        try:
            one["differ"], one["changed"], one["unwritten"] = compared(torch, function, entry, spec, case, generator)
            if not rehearsed:
                one["time"] = timed(torch, function, entry, spec, case, generator, rng)
        except Exception as error:
            one["error"] = f"{type(error).__name__}: {error}"
        torch.cuda.empty_cache()
        found.append(one)
    device = "none" if rehearsed else torch.cuda.get_device_properties(0).name
    say({"device": device, "module": module, "versions": versions(torch), "seed": seed, "cases": found})


main()
