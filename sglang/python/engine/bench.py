"""Serves a model with random weights, with a plug-in off and on in turn, each time in processes of its own.

python bench.py MODEL PLUGIN OUT BATCH TOKENS NEW ROUNDS. OUT/bench.json has, by arm, a time to the first token and a time
for each later one in each process, the tokens, and the plug-in's counters. SGLang uses CUDA graphs as it always does.
"""

import collections
import json
import os
import pathlib
import random
import subprocess
import sys
import time

from engine import generated, prompts, started, stop

# Within a process: what the median is taken of.
TRIALS = 5


def one(model, batch, tokens, new):
    """What one process measures, on its standard output."""
    vocabulary = json.loads((pathlib.Path(model) / "config.json").read_text())["vocab_size"]
    engine = started(model)
    try:
        asked = prompts(batch, tokens, vocabulary, 1)
        answers = generated(engine, asked, new)
        first = median(lambda: generated(engine, asked, 1))
        whole = median(lambda: generated(engine, asked, new))
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
    """One process with the plug-in off or on, and what it counted."""
    counters = out / "counters" / name
    environment = dict(os.environ, WARPSMITH_SGLANG=name, WARPSMITH_SGLANG_COUNTERS=str(counters))
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [str(out / "site"), os.environ.get("PYTHONPATH")]))
    done = subprocess.run(
        [sys.executable, __file__, "one", *arguments], env=environment, stdout=subprocess.PIPE, text=True
    )
    if done.returncode:
        sys.exit(done.returncode)
    return json.loads(done.stdout.strip().splitlines()[-1])


def counted(folder):
    total = collections.Counter()
    for file in folder.glob("*.json"):
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
    for _ in range(int(rounds)):
        for name in random.sample(["off", "on"], 2):
            told[name].append(arm(name, out, [model, batch, tokens, new]))
    result = {
        "samples": {name: [{k: v for k, v in one.items() if k != "ids"} for one in all] for name, all in told.items()},
        "difference": differs(told["off"][0]["ids"], told["on"][0]["ids"]),
        "own_difference": differs(told["off"][0]["ids"], told["off"][-1]["ids"]),
        "counters": counted(out / "counters" / "on"),
    }
    (out / "bench.json").write_text(json.dumps(result, indent=1))


if __name__ == "__main__":
    if sys.argv[1] == "one":
        one(sys.argv[2], *map(int, sys.argv[3:]))
    else:
        main(*sys.argv[1:])
