"""Serves a model with random weights, with a plug-in off and on in turn, each time in processes of its own.

python bench.py MODEL PLUGIN OUT BATCH TOKENS NEW ROUNDS. OUT/bench.json has, by arm, a time to the first token and a time
for each later one in each process, where the tokens differ first (null: nowhere; left out where there is nothing to compare)
and the plug-in's counters. SGLang uses CUDA graphs as it always does. It is written anew after each process, and a process
that dies is started once more: what was measured before stays.
"""

import collections
import json
import os
import pathlib
import random
import shutil
import subprocess
import sys
import time

from engine import CANNOT, generated, prompts, started, stop

# Within a process: what the median is taken of.
TRIALS = 5
# After the last request: for the plug-in's counters, which are kept every second.
SETTLE_S = 2


def one(model, batch, tokens, new):
    """What one process measures, on its standard output."""
    vocabulary = json.loads((pathlib.Path(model) / "config.json").read_text())["vocab_size"]
    engine = started(model)
    try:
        asked = prompts(batch, tokens, vocabulary, 1)
        answers = generated(engine, asked, new)
        first = median(lambda: generated(engine, asked, 1))
        whole = median(lambda: generated(engine, asked, new))
        time.sleep(SETTLE_S)
    finally:
        engine.shutdown()
    ids = [answer["output_ids"] for answer in answers]
    print(json.dumps({"first_us": first, "token_us": (whole - first) / (new - 1), "ids": ids}))


def median(call):
    samples = []
    for _ in range(TRIALS):
        start = time.perf_counter()
        call()
        samples.append((time.perf_counter() - start) * 1e6)
    return sorted(samples)[TRIALS // 2]


def installed(plugin, site):
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-index", "--no-build-isolation"]
    done = subprocess.run([*pip, "--target", str(site), str(plugin)], capture_output=True, text=True)
    if done.returncode:
        lines = done.stderr.strip().splitlines() or ["it said nothing"]
        # Our own setup.py says what is lacking; else pip's first error says more than its last line.
        told = [line.strip() for mark in ("warpsmith: ", "error", "ERROR") for line in lines if line.strip().startswith(mark)]
        stop(f"{plugin} cannot be installed by pip: {(told or lines[-1:])[0]}")


def arm(name, out, arguments):
    """One process with the plug-in off or on; nothing where it dies twice, as engines do now and then."""
    environment = dict(os.environ, WARPSMITH_SGLANG=name)
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [str(out / "site"), os.environ.get("PYTHONPATH")]))
    for _ in range(2):
        counters = out / "counters" / name / str(time.monotonic_ns())
        environment["WARPSMITH_SGLANG_COUNTERS"] = str(counters)
        done = subprocess.run(
            [sys.executable, __file__, "one", *arguments], env=environment, stdout=subprocess.PIPE, text=True
        )
        if not done.returncode:
            return json.loads(done.stdout.strip().splitlines()[-1])
        if done.returncode == CANNOT:
            sys.exit(CANNOT)
        # What it counted belongs to no time that is told.
        shutil.rmtree(counters, ignore_errors=True)
        print(f"a process with the plug-in {name} ended with {done.returncode}", file=sys.stderr)
    return None


def counted(folder):
    total = collections.Counter()
    for file in folder.glob("*/*.json"):
        for operator, types in json.loads(file.read_text()).items():
            for dtype, told in types.items():
                total.update({f"{operator} {dtype}: {what}": times for what, times in told.items()})
    return dict(total)


def differs(off, on):
    """Where the first answer that differs does so first: request and token; nothing where none does."""
    for request, (one, other) in enumerate(zip(off, on)):
        for place, (a, b) in enumerate(zip(one, other)):
            if a != b:
                return {"request": request, "token": place}
    return None


def main(model, plugin, out, batch, tokens, new, rounds):
    out = pathlib.Path(out)
    installed(plugin, out / "site")
    told = {"off": [], "on": []}
    for name in (name for _ in range(int(rounds)) for name in random.sample(["off", "on"], 2)):
        found = arm(name, out, [model, batch, tokens, new])
        if found is None:
            break
        told[name].append(found)
        (out / "bench.json").write_text(json.dumps(summed(told, out), indent=1))
    else:
        return
    before = f"{len(told['off'])} without the plug-in and {len(told['on'])} with it had ended"
    sys.exit(f"a process died twice in a row when {before}, whose times are in {out / 'bench.json'}")


def summed(told, out):
    result = {
        "samples": {name: [{k: v for k, v in one.items() if k != "ids"} for one in all] for name, all in told.items()},
        "counters": counted(out / "counters" / "on"),
    }
    off, on = ([one["ids"] for one in told[name]] for name in ("off", "on"))
    if off and on:
        result["difference"] = differs(off[0], on[0])
    if len(off) > 1:
        result["own_difference"] = differs(off[0], off[-1])
    return result


if __name__ == "__main__":
    if sys.argv[1] == "one":
        one(sys.argv[2], *map(int, sys.argv[3:]))
    else:
        main(*sys.argv[1:])
