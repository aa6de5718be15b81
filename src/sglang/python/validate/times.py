"""How do the original, its unchanged text and the kernel compare in time, shape by shape?"""

import importlib
import statistics

import checks
import clock
from told import last_line


def chooser(package, unchanged, ours, extract):
    def choose():
        package.use(ours)
        if unchanged:
            unchanged.use(extract)

    return choose


def times(told, operator, package, unchanged, repetitions, speed):
    """All ways through the framework's function, and through the functions that the framework calls in its place."""
    own = operator.function()
    entries = [
        ("", lambda *values: own(*values, **operator.fixed()), operator.described["call"]["positional"])
    ]
    for hook in operator.described["functions"]:
        module, name = hook["path"].rsplit(".", 1)
        entries.append((hook["path"], getattr(importlib.import_module(module), name), hook["passed"]))
    served = lambda: unchanged.counters()[operator.name][operator.dtype].get("hit", 0)
    before = served() if unchanged else 0
    for through, function, passed in entries:
        for group in ("loop", "validation"):
            pairs, beside = [], []
            for shape in operator.described[group]:
                if not operator.is_certified(shape):
                    told.say(
                        f"       {operator.name} {operator.dtype} {checks.said(shape)}: not certified, so not timed"
                    )
                    continue
                try:
                    entry, ways = timed(operator, shape, function, passed, package, unchanged, repetitions)
                except Exception as error:
                    told.not_done(
                        f"{operator.name} {operator.dtype}: timing {checks.said(shape)} {through}",
                        last_line(error),
                    )
                    continue
                entry.update(group=group, through=through)
                entry["floor_us"] = operator.bytes(operator.values(shape, 1)) / speed * 1e6
                told.result["times"].append(entry)
                pairs.append((ways[0].samples, ways[-1].samples))
                beside.append((ways[0].samples, ways[1].samples))
                told.say(line(entry))
            if pairs:
                whole = {
                    "operator": operator.name,
                    "dtype": operator.dtype,
                    "group": group,
                    "through": through,
                    "shapes": len(pairs),
                    "optimized": clock.mean(pairs),
                }
                if unchanged:
                    whole["unchanged"] = clock.mean(beside)
                told.result.setdefault("means", []).append(whole)
                mean = whole["optimized"]
                beside_it = f", unchanged {whole['unchanged']['ratio']:.3f}x" if unchanged else ""
                what = f"{operator.name} {operator.dtype} {group}{' by ' + through if through else ''}"
                told.say(f"mean   {what}: {ratio(mean)} over {len(pairs)} shapes{beside_it}")
    if unchanged and served() == before:
        told.checked(
            operator.name,
            operator.dtype,
            "the unchanged extract was called",
            False,
            "its times are the original's",
        )


def timed(operator, shape, function, passed, package, unchanged, repetitions):
    call = lambda values: function(*operator.ordered(values, passed))
    ways = [clock.Way("original", chooser(package, unchanged, False, False), call)]
    if unchanged:
        ways.append(clock.Way("unchanged", chooser(package, unchanged, False, True), call))
    ways.append(clock.Way("optimized", chooser(package, unchanged, True, False), call))
    clock.compare(ways, lambda i: operator.values(shape, 3000 + i), repetitions)
    chooser(package, unchanged, True, False)()
    entry = {"operator": operator.name, "dtype": operator.dtype, "shape": shape}
    entry["device_us"] = {way.name: statistics.median(way.samples) * 1e6 for way in ways}
    entry["host_us"] = {way.name: statistics.median(way.host) * 1e6 for way in ways}
    entry["speedup"] = clock.ratio(ways[0].samples, ways[-1].samples)
    entry["samples_us"] = {way.name: [round(s * 1e6, 4) for s in way.samples] for way in ways}
    return entry, ways


def ratio(speedup):
    """A speedup with its interval."""
    return f"{speedup['ratio']:.3f}x [{speedup['low']:.3f}, {speedup['high']:.3f}]"


def line(entry):
    """A shape's times in a line."""
    device = "  ".join(f"{name} {us:.2f}" for name, us in entry["device_us"].items())
    host = "  ".join(f"{us:.2f}" for us in entry["host_us"].values())
    what = f"{entry['operator']} {entry['dtype']} {checks.said(entry['shape'])}"
    what += f" by {entry['through']}" if entry["through"] else ""
    floor = f"floor {entry['floor_us']:.2f}"
    return f"time   {what}: {device} us, {floor}; with the host {host}; {ratio(entry['speedup'])}"
