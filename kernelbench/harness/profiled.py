"""One call of a candidate that is built already, for a profiler to look at: warmed up, then once between start and stop.

It is started ahead of need, imports torch, and waits for the word to make its context, which disturbs whoever is timed; then for the word to have the profiler read a launch of its own, for one process at a time may read; then it says that it is ready, and waits until it is given its job. It loads the candidate and warms it up beside others' work, says so, and waits again until the device is its own. It runs as untrusted as the candidate itself; what a profiler makes of it is advice and decides nothing.
"""

import json
import os
import sys
import time

BEGAN = time.perf_counter()
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import torch  # noqa: E402

import candidate  # noqa: E402
import wire  # noqa: E402

WARM_UP = 3


class Stages:
    """How long each stage took, for whoever reads what was printed."""

    def __init__(self):
        self.last = BEGAN

    def note(self, name):
        now = time.perf_counter()
        print(f"\nwarpsmith stage {name}: {now - self.last:.3f} s", flush=True)
        self.last = now


def between_start_and_stop(work, device):
    if device.type != "cuda":  # a pretended profiler, in a test
        work()
        return
    torch.cuda.synchronize()
    torch.cuda.cudart().cudaProfilerStart()
    work()
    torch.cuda.synchronize()
    torch.cuda.cudart().cudaProfilerStop()


class Zeros:
    """Stands for the inputs where a test pretends to profile on the processor: they are shared on a GPU alone."""

    def tensor(self, spec):
        return torch.zeros(spec["shape"], dtype=wire.dtype_of(spec["dtype"]))


def settled(device):
    if device.type == "cuda":
        torch.cuda.synchronize()


def prepare(device, primed, folder, stages):
    """What takes long and needs no candidate. Where primed, exactly one launch is read."""
    stages.note("torch")
    candidate.import_usual()
    stages.note("imports")
    told(folder, "imported")
    stages.note("waiting for quiet to end")
    if device.type == "cuda":
        torch.cuda.set_device(device)
    probe = torch.zeros(1, device=device)
    probe.fill_(1)
    settled(device)
    stages.note("context")
    if primed:
        told(folder, "warm")
        stages.note("waiting for the counters")
        open(os.path.join(folder, "reading"), "w").close()
        between_start_and_stop(lambda: probe.fill_(0), device)
        stages.note("own launch")


def told(folder, sign):
    """Says by a file that it waits, and waits for a line; ends where the program that would give one is gone."""
    with open(os.path.join(folder, "job"), encoding="utf-8") as pipe:
        open(os.path.join(folder, sign), "w").close()
        line = pipe.readline()
    if not line:
        raise SystemExit("nobody gave a job")
    return json.loads(line)


def main():
    folder, stages = os.getcwd(), Stages()
    with open("asked", encoding="utf-8") as file:
        asked = json.load(file)
    device = torch.device(asked["device"])
    prepare(device, asked["primed"], folder, stages)
    job = told(folder, "ready")
    stages.note("waiting")
    os.environ.update(dict(job["environment"]))
    runner = candidate.Runner(job["setup"])
    loaded = runner.load(job["load"])
    if "missing" in loaded:
        raise SystemExit(loaded["missing"])
    stages.note("load")
    if device.type == "cuda":
        runner.map_inputs({"arena": job["arena"]})
    else:
        runner.arena = Zeros()
    runner.construct(job["construct"])
    runner.set_inputs({"inputs": job["inputs"]})
    inputs = [value.clone() if isinstance(value, torch.Tensor) else value for value in runner.inputs[0]]

    def call():
        runner.model(*inputs)

    with torch.no_grad():
        if "once" in job:
            call()
            settled(device)
            print(f"\n{job['once']}", flush=True)
            return
        stages.note("model")
        for _ in range(WARM_UP):
            call()
        settled(device)
        stages.note("warm-up")
        told(folder, "loaded")
        stages.note("waiting for the device")
        between_start_and_stop(call, device)
        stages.note("reading")
    # All was read: to tear everything down would take as long as the reading.
    sys.stdout.flush()
    os._exit(0)


main()
