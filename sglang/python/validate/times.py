"""How do the original, its unchanged text and the kernel compare in time, shape by shape?"""

import importlib
import traceback

import checks
import clock
from calls import ordered
from told import last_line


def chooser(package, unchanged, ours, extract):
    def choose():
        package.use(ours)
        if unchanged:
            unchanged.use(extract)

    return choose


def times(told, operator, package, unchanged, repetitions, speed):
    """All ways through the framework's function, and through the functions that the framework calls in its place."""
    served = lambda: unchanged.counters()[operator.name][operator.dtype].get("hit", 0)
    if unchanged and operator.dtype not in unchanged.counters().get(operator.name, {}):
        unchanged = None
    before = served() if unchanged else 0
    timed = 0
    for through, call in entries(told, operator, package):
        for group in ("loop", "validation"):
            for shape in operator.described[group]:
                what = f"{operator.name} {operator.dtype} {checks.said(shape)}{by(through)}"
                if not operator.is_certified(shape):
                    told.say(f"       {what}: not certified, so not timed")
                    continue
                try:
                    entry = one(operator, shape, call, package, unchanged, repetitions)
                    floor = operator.bytes(operator.values(shape, 1)) / speed * 1e6
                except Exception as error:
                    traceback.print_exc()
                    told.not_done(f"timing {what}", last_line(error))
                    continue
                finally:
                    chooser(package, unchanged, True, False)()
                entry.update(group=group, through=through, floor_us=floor)
                told.result["times"].append(entry)
                told.say(line(entry))
                timed += 1
    if unchanged and timed and served() == before:
        why = "its times are the original's"
        told.checked(operator.name, operator.dtype, "the unchanged extract was called", False, why)


def entries(told, operator, package):
    """What calls the operator on arguments by name: the framework's own functions, and those of other libraries."""
    yield "", operator.caller(package)
    for hook in operator.described["functions"]:
        module, name = hook["path"].rsplit(".", 1)
        try:
            function = getattr(importlib.import_module(module), name)
        except (ImportError, AttributeError) as error:
            told.not_done(f"timing {operator.name} {operator.dtype}{by(hook['path'])}", last_line(error))
            continue
        yield hook["path"], lambda values, function=function, hook=hook: function(*ordered(values, hook["passed"]))


def one(operator, shape, call, package, unchanged, repetitions):
    """A shape's times."""
    ways = [clock.Way("original", chooser(package, unchanged, False, False), call)]
    if unchanged:
        ways.append(clock.Way("unchanged", chooser(package, unchanged, False, True), call))
    ways.append(clock.Way("optimized", chooser(package, unchanged, True, False), call))
    clock.compare(ways, lambda i: operator.values(shape, 3000 + i), repetitions, device=operator.device)
    return {"operator": operator.name, "dtype": operator.dtype, "shape": shape, **clock.reported(ways)}


def by(through):
    return f" by {through}" if through else ""


def line(entry):
    """A shape's times in a line."""
    device = "  ".join(f"{name} {us:.2f}" for name, us in entry["device_us"].items())
    host = "  ".join(f"{us:.2f}" for us in entry["host_us"].values())
    what = f"{entry['operator']} {entry['dtype']} {checks.said(entry['shape'])}{by(entry['through'])}"
    floor = f"floor {entry['floor_us']:.2f}"
    return f"time   {what}: {device} us, {floor}; with the host {host}"
