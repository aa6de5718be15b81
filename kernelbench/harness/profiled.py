"""One call of a candidate that is built already, for a profiler to look at: warmed up, then once between start and stop.

It is started ahead of need, imports torch, makes its context, says that it is ready, and stands still until it is given
its job. It runs as untrusted as the candidate itself; what a profiler makes of it is advice and decides nothing.
"""

import contextlib
import importlib
import json
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import torch  # noqa: E402

import candidate  # noqa: E402

WARM_UP = 3
# What candidates import as a rule.
USUAL = ["torch.utils.cpp_extension", "triton.language"]


def between_start_and_stop(work):
    torch.cuda.synchronize()
    torch.cuda.cudart().cudaProfilerStart()
    work()
    torch.cuda.synchronize()
    torch.cuda.cudart().cudaProfilerStop()


def prepare(device, primed):
    """What takes long and needs no candidate. Where primed, the profiler reads exactly one launch."""
    for module in USUAL:
        with contextlib.suppress(Exception):
            importlib.import_module(module)
    torch.cuda.set_device(device)
    probe = torch.zeros(1, device=device)
    probe.fill_(1)
    if primed:
        between_start_and_stop(lambda: probe.fill_(0))


def job_of(folder):
    """Waits for the job; ends where the program that would give one is gone."""
    with open(os.path.join(folder, "job"), encoding="utf-8") as pipe:
        open(os.path.join(folder, "ready"), "w").close()
        line = pipe.readline()
    if not line:
        raise SystemExit("nobody gave a job")
    return json.loads(line)


def main(folder, primed, device):
    prepare(torch.device(device), primed == "primed")
    job = job_of(folder)
    os.environ.update(job["environment"])
    runner = candidate.Runner(job["setup"])
    told = runner.load(job["load"])
    if "missing" in told:
        raise SystemExit(told["missing"])
    runner.map({"arena": job["arena"]})
    runner.construct(job["construct"])
    runner.inputs_of({"inputs": job["inputs"]})
    inputs = [value.clone() if isinstance(value, torch.Tensor) else value for value in runner.inputs[0]]
    with torch.no_grad():
        if "once" in job:
            runner.model(*inputs)
            torch.cuda.synchronize()
            print(f"\n{job['once']}", flush=True)
            return
        for _ in range(WARM_UP):
            runner.model(*inputs)
        between_start_and_stop(lambda: runner.model(*inputs))


main(*sys.argv[1:])
