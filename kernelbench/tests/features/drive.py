"""Runs the kernels of a column of features on a GPU: compares them with their references, times them, reads their counters.

    drive.py check BUILT CELL          one cell: a line of JSON for each kernel
    drive.py calls BUILT CELL...       calls each kernel under a profiler, with a marker behind each call
    drive.py metrics CELL...           the counters of these cells, with commas between
    drive.py table BUILT CELL...       the table, of BUILT/CELL.json and BUILT/counters.csv

A CELL is its folder. BUILT holds CELL_reference.so, CELL_naive.so, CELL_optimized.so and bench.so, as verify.sh builds them.
"""

import csv
import ctypes
import json
import math
import os
import re
import statistics
import subprocess
import sys
import tomllib

DTYPES = {"f32": (0, 4), "f64": (1, 8), "f16": (2, 2), "bf16": (3, 2), "i32": (4, 4), "i64": (5, 8), "e4m3": (6, 1)}
SCALARS = {"f32": ctypes.c_float, "f64": ctypes.c_double, "i32": ctypes.c_int32, "i64": ctypes.c_int64}
FILLS = {"zeros": 0, "ones": 1, "uniform": 2, "normal": 3, "integers": 4}
KINDS = ["naive", "optimized"]
ROUNDS = 2  # of profiles, to see whether a counter repeats


def read(cell, file):
    with open(os.path.join(cell, file), "rb") as opened:
        return tomllib.load(opened)


def name_of(cell):
    return os.path.basename(os.path.normpath(cell))


class Bench:
    """The library beside this script."""

    def __init__(self, built):
        self.library = ctypes.CDLL(os.path.join(built, "bench.so"))
        self.stream = ctypes.c_void_p()
        self.do("open", ctypes.byref(self.stream))

    def do(self, what, *arguments):
        error = getattr(self.library, "bench_" + what)(*arguments)
        if error:
            raise RuntimeError(f"CUDA error {error} at {what}")

    def allocate(self, size):
        address = ctypes.c_void_p()
        self.do("allocate", ctypes.byref(address), ctypes.c_int64(size))
        return address


class Case:
    """A case of a task with its arrays in the GPU's memory."""

    def __init__(self, bench, task, case):
        self.bench, self.task, self.arrays = bench, task, {}
        scalars = {key: value for key, value in case.items() if key != "name"}
        for seed, argument in enumerate(task["argument"]):
            if "size" in argument:
                self.place(argument, scalars, seed)
        self.scalars = scalars

    def place(self, argument, scalars, seed):
        code, width = DTYPES[argument["dtype"]]
        count = eval(argument["size"].replace("/", "//"), {}, scalars)
        self.arrays[argument["name"]] = (self.bench.allocate(count * width), code, count, count * width)
        if argument["transfer"] != "out":
            self.draw(argument, code, count, seed)

    def draw(self, argument, code, count, seed):
        fill = argument["fill"]
        kind, bounds = (fill, {}) if isinstance(fill, str) else next(iter(fill.items()))
        a, b = ([*bounds.values(), 0, 0])[:2] if kind == "normal" else (bounds.get("low", 0), bounds.get("high", 0))
        if kind == "normal":
            a, b = bounds["mean"], bounds["std"]
        numbers = (ctypes.c_int(FILLS[kind]), ctypes.c_double(a), ctypes.c_double(b), ctypes.c_uint64(seed + 1))
        array = self.arrays[argument["name"]][0]
        self.bench.do("draw", array, ctypes.c_int(code), ctypes.c_int64(count), *numbers)

    def outputs(self):
        return [a["name"] for a in self.task["argument"] if a.get("transfer") in ("out", "in-out")]

    def call(self, entry):
        """Enqueues one call."""
        passed = []
        for argument in self.task["argument"]:
            name = argument["name"]
            passed.append(self.arrays[name][0] if name in self.arrays else SCALARS[argument["dtype"]](self.scalars[name]))
        entry(*passed, self.bench.stream)

    def run(self, entry):
        """Poisons the outputs, calls, waits."""
        for name in self.outputs():
            array, _, _, size = self.arrays[name]
            self.bench.do("poison", array, ctypes.c_int64(size))
        self.call(entry)
        self.bench.do("wait")

    def keep(self):
        """Sets what the outputs hold aside, as what is expected, and gives them new places."""
        self.expected = {name: self.arrays[name] for name in self.outputs()}
        for name, (_, code, count, size) in self.expected.items():
            self.arrays[name] = (self.bench.allocate(size), code, count, size)

    def compare(self):
        """Elements that are wrong, the largest difference, and the largest number expected."""
        worst = [0.0, 0.0, 0.0]
        for name, (expected, code, count, _) in self.expected.items():
            found = (ctypes.c_double * 3)()
            bounds = (ctypes.c_double(self.task["tolerance"]["atol"]), ctypes.c_double(self.task["tolerance"]["rtol"]))
            got = self.arrays[name][0]
            self.bench.do("compare", expected, got, ctypes.c_int(code), ctypes.c_int64(count), *bounds, found)
            worst = [worst[0] + found[0], max(worst[1], found[1]), max(worst[2], found[2])]
        return worst

    def record(self, entry, calls):
        self.bench.do("record")
        for _ in range(calls):
            self.call(entry)
        self.bench.do("recorded")

    def times(self, entry, calls, replays):
        """Microseconds of a call, one number a replay."""
        self.record(entry, calls)
        taken, milliseconds = [], ctypes.c_float()
        for _ in range(replays + 2):
            self.bench.do("replay", ctypes.byref(milliseconds))
            taken.append(milliseconds.value * 1000 / calls)
        return taken[2:]

    def free(self):
        for array, *_ in [*self.arrays.values(), *getattr(self, "expected", {}).values()]:
            self.bench.do("release", array)


def entry_of(built, cell, kind, task):
    library = ctypes.CDLL(os.path.join(built, f"{name_of(cell)}_{kind}.so"))
    entry = getattr(library, task["entry"])
    entry.restype = None
    return entry


def check(built, cell):
    bench, task = Bench(built), read(cell, "task.toml")
    entries = {kind: entry_of(built, cell, kind, task) for kind in ["reference", *KINDS]}
    for place, drawn in [("case", c) for c in task["case"]] + [("final", c) for c in task.get("final_case", [])]:
        case = Case(bench, task, drawn)
        case.run(entries["reference"])
        if place == "case":
            tell(kind="reference", case=drawn["name"], us=statistics.median(case.times(entries["reference"], 1, 3)))
        case.keep()
        for kind in KINDS:
            tell(kind=kind, case=drawn["name"], place=place, at="begun")
            found = []
            for _ in range(3):
                case.run(entries[kind])
                found.append(case.compare())
            bad, largest, expected = (max(column) for column in zip(*found))
            tell(kind=kind, case=drawn["name"], place=place, bad=bad, largest=largest, expected=expected)
        if place == "case":
            for _ in range(3):  # by turns, so that what changes slowly meets both
                for kind in KINDS:
                    tell(kind=kind, us=case.times(entries[kind], 5, 5))
        case.free()


def tell(**what):
    print(json.dumps(what), flush=True)


def calls(built, cells):
    bench = Bench(built)
    for cell in cells:
        task = read(cell, "task.toml")
        case = Case(bench, task, task["case"][0])
        entries = [entry_of(built, cell, kind, task) for kind in KINDS]
        for entry in entries:
            case.run(entry)
        for entry in entries * ROUNDS:
            bench.do("profile", 1)
            case.call(entry)
            bench.do("mark")
            bench.do("wait")
            bench.do("profile", 0)
        case.free()


def metrics(cells):
    return sorted({e["counter"] for cell in cells for e in read(cell, "config.toml")["evidence"] if "counter" in e})


def launches(path):
    """What the profiler read, a dictionary for each launch; between two calls lies None."""
    with open(path, newline="") as opened:
        lines = [line for line in opened if line.startswith('"')]
    rows = list(csv.DictReader(lines))[1:]  # the first holds the units
    return [None if "between" in row["Kernel Name"] else row for row in rows]


def by_call(path, cells):
    """The launches of each call: by cell and kind, one list a round."""
    split, present = [], []
    for launch in launches(path):
        if launch is None:
            split.append(present)
            present = []
        else:
            present.append(launch)
    found, at = {}, iter(split)
    for cell in cells:
        for _ in range(ROUNDS):
            for kind in KINDS:
                found.setdefault((cell, kind), []).append(next(at, []))
    return found


def reading(launched, evidence):
    numbers = []
    for launch in launched:
        text = launch.get(evidence["counter"], "").replace(",", "")
        try:
            numbers.append(float(text))
        except ValueError:
            return math.nan
    if not numbers:
        return math.nan
    return max(numbers) if evidence.get("over") == "largest" else sum(numbers)


def gain(naive, optimized, evidence):
    if math.isnan(naive) or math.isnan(optimized):
        return math.nan
    if evidence["direction"] == "lower":
        naive, optimized = optimized, naive
    if naive <= evidence["floor"]:
        return math.inf if optimized > evidence["floor"] else 1.0
    return optimized / naive


def machine_code(built, cell, kind):
    library = os.path.join(built, f"{name_of(cell)}_{kind}.so")
    try:
        return subprocess.run(["cuobjdump", "-sass", library], capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return None


def holds(built, cell, evidence, called):
    """How the evidence reads, and whether it holds; None where nobody knows."""
    if "instruction" in evidence:
        codes = [machine_code(built, cell, kind) for kind in KINDS]
        if None in codes:
            return f"{evidence['instruction']}: no cuobjdump", None
        counts = [len(re.findall(rf"\b{re.escape(evidence['instruction'])}", code)) for code in codes]
        return f"{evidence['instruction']}: {counts[0]} -> {counts[1]} in the code", counts[0] == 0 and counts[1] > 0
    if (cell, "naive") not in called:
        return f"{evidence.get('counter', 'launches')}: not read", None
    rounds = {kind: called[cell, kind] for kind in KINDS}
    if "launches" in evidence:
        naive, optimized = (len(rounds[kind][0]) for kind in KINDS)
        return f"launches: {naive} -> {optimized}", optimized <= evidence["launches"] < naive
    values = {kind: [reading(launched, evidence) for launched in rounds[kind]] for kind in KINDS}
    naive, optimized = (values[kind][0] for kind in KINDS)
    ratio = gain(naive, optimized, evidence)
    spread = max(abs(v - optimized) for v in values["optimized"]) / optimized if optimized else 0.0
    mark = "target " if evidence.get("target") else ""
    text = f"{mark}{evidence['counter']}: {naive:.6g} -> {optimized:.6g}, gain {ratio:.3g} (least {evidence['least_gain']})"
    return f"{text}, again within {100 * spread:.2f} %", None if math.isnan(ratio) else ratio >= evidence["least_gain"]


def told(built, cell):
    try:
        with open(os.path.join(built, name_of(cell) + ".json")) as opened:
            return [json.loads(line) for line in opened if line.startswith("{")]
    except OSError:
        return []


def verdict(lines):
    """Whether both kernels were right in all cases, and what to say of it."""
    compared = [line for line in lines if "bad" in line]
    right = len(compared) == 4 and all(line["bad"] == 0 for line in compared)
    said = [f"{line['kind']} {line['case']}: {line['bad']:.0f} wrong, off by {line['largest']:.3g}" for line in compared]
    begun = [line for line in lines if line.get("at")]
    if len(begun) > len(compared):
        said.append(f"{begun[-1]['kind']} {begun[-1]['case']}: did not come to an end")
    return right, said


def table(built, cells):
    counters = os.path.join(built, "counters.csv")
    right = [cell for cell in cells if verdict(told(built, cell))[0]]
    called = by_call(counters, right) if os.path.exists(counters) else {}
    print(f"{'cell':14} {'equal':6} {'reference':>10} {'naive':>10} {'optimized':>10} {'ratio':>7} {'paper':>7}  fired")
    details = []
    for cell in cells:
        lines = told(built, cell)
        equal, said = verdict(lines)
        us = {kind: [t for line in lines if line["kind"] == kind and isinstance(line.get("us"), list) for t in line["us"]] for kind in KINDS}
        medians = [statistics.median(us[kind]) if us[kind] else math.nan for kind in KINDS]
        reference = next((line["us"] for line in lines if line["kind"] == "reference"), math.nan)
        config = read(cell, "config.toml")
        evidence = [holds(built, cell, e, called) for e in config["evidence"]]
        known = [held for _, held in evidence]
        fired = "NO" if False in known else "?" if None in known else "yes"
        ratio = medians[0] / medians[1]
        paper = config["paper"]["time_gain"]
        print(f"{name_of(cell):14} {'yes' if equal else 'NO':6} {reference:10.1f} {medians[0]:10.1f} {medians[1]:10.1f} {ratio:7.2f} {paper:7.2f}  {fired}")
        details += ["", name_of(cell), *("  " + s for s in said), *(f"  [{'yes' if h else '?' if h is None else 'NO'}] {t}" for t, h in evidence)]
    print("(times in microseconds, medians)")
    print("\n".join(details))


def main():
    what, *rest = sys.argv[1:]
    if what == "metrics":
        print(",".join(metrics(rest)))
    elif what == "check":
        check(*rest)
    elif what == "calls":
        calls(rest[0], rest[1:])
    elif what == "right":
        print("\n".join(cell for cell in rest[1:] if verdict(told(rest[0], cell))[0]))
    else:
        table(rest[0], rest[1:])


if __name__ == "__main__":
    main()
