"""One call of a candidate that is built already, for a profiler to look at: warmed up, then once between start and stop.

It runs as untrusted as the candidate itself; what a profiler makes of it is advice and decides nothing.
"""

import json
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import torch  # noqa: E402

import candidate  # noqa: E402

WARM_UP = 3


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        job = json.load(file)
    runner = candidate.Runner(job["setup"])
    told = runner.load(job["load"])
    if "missing" in told:
        raise SystemExit(told["missing"])
    runner.construct(job["construct"])
    runner.map({"arena": job["arena"]})
    runner.inputs_of({"inputs": job["inputs"]})
    inputs = [value.clone() if isinstance(value, torch.Tensor) else value for value in runner.inputs[0]]
    with torch.no_grad():
        for _ in range(WARM_UP):
            runner.model(*inputs)
        torch.cuda.synchronize()
        torch.cuda.cudart().cudaProfilerStart()
        runner.model(*inputs)
        torch.cuda.synchronize()
        torch.cuda.cudart().cudaProfilerStop()


main()
