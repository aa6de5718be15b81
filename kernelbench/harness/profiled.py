"""One call of a candidate that is built already, for a profiler to look at: warmed up, then once between start and stop, or as
often as it takes to read counters itself, where it is told which.

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
import counters  # noqa: E402
import wire  # noqa: E402

WARM_UP = 3
CACHES = 2  # as often as the L2 cache holds is written before each pass


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


class Under:
    """A profiler that this process was started under, which reads between start and stop."""

    def __init__(self, device):
        self.device = device

    def read_own(self, work):
        between_start_and_stop(work, self.device)

    def prepare(self, work):
        pass

    def read(self, work, _before):
        between_start_and_stop(work, self.device)


class Itself:
    """This process reads the counters itself."""

    def __init__(self, device, names):
        self.device, self.names = device, names

    def read_own(self, work):
        try:
            self.counters = counters.Counters(self.device, self.names)
            launches = self.counters.launches_of(work)
            self.counters.read(launches, work, lambda: None)
        except (counters.Unavailable, counters.NotByRange, OSError) as why:
            raise SystemExit(f"warpsmith counters: {why}") from None

    def prepare(self, work):
        try:
            self.launches = self.counters.launches_of(work)
        except (counters.Unavailable, counters.NotByRange) as why:
            raise SystemExit(f"warpsmith ranges: {why}") from None
        holds = torch.cuda.get_device_properties(self.device).L2_cache_size
        self.cold = torch.empty(CACHES * holds, dtype=torch.uint8, device=self.device)

    def read(self, work, before):
        def cold():
            before()
            self.cold.zero_()

        try:
            self.counters.read(self.launches, work, cold)
            self.counters.print_table()
        except (counters.Unavailable, counters.NotByRange) as why:
            raise SystemExit(f"warpsmith ranges: {why}") from None


def prepare(device, primed, reader, folder, stages):
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
        reader.read_own(lambda: probe.fill_(0))
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
    reader = Itself(device, asked["names"].split(",")) if asked["names"] else Under(device)
    prepare(device, asked["primed"], reader, folder, stages)
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
    given = runner.inputs[0]
    inputs = [value.clone() if isinstance(value, torch.Tensor) else value for value in given]

    def call():
        runner.model(*inputs)

    def renew():
        for ours, original in zip(inputs, given, strict=True):
            if isinstance(ours, torch.Tensor):
                ours.copy_(original)

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
        reader.prepare(call)
        stages.note("warm-up")
        told(folder, "loaded")
        stages.note("waiting for the device")
        reader.read(call, renew)
        stages.note("reading")
    # All was read: to tear everything down would take as long as the reading.
    sys.stdout.flush()
    os._exit(0)


main()
