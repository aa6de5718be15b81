"""A harness as harnesses were: one process, known seeds, one namespace, the timed outputs unseen. It shows that a cheat works.

naive.py DEVICE FOLDER CHEAT.py...: prints what it believes of each, a JSON object a line. On a GPU it compares on the host and
reads events on the current stream."""

import json
import os
import re
import sys
import time

import torch


def evaluate(problem, candidate):
    names = {}
    exec(compile(open(problem).read(), problem, "exec"), names)
    get_inputs, get_init_inputs = names["get_inputs"], names["get_init_inputs"]
    torch.manual_seed(42)
    reference = names["Model"](*get_init_inputs()).to(DEVICE)
    exec(compile(open(candidate).read(), candidate, "exec"), names)
    torch.manual_seed(42)
    model = names["ModelNew"](*get_init_inputs()).to(DEVICE)
    torch.manual_seed(42)
    correct = True
    for seed in torch.randint(0, 2**31, (5,)).tolist():
        torch.manual_seed(seed)
        inputs = [value.to(DEVICE) if isinstance(value, torch.Tensor) else value for value in get_inputs()]
        expected = reference(*inputs).cpu()
        got = model(*inputs)
        if DEVICE != "cpu":
            torch.cuda.synchronize()
        correct &= torch.allclose(expected, got.cpu(), atol=1e-4, rtol=1e-4)
    theirs, ours = clock(model, inputs), clock(reference, inputs)
    return {"correct": correct, "speedup": ours / max(theirs, 1e-9)}


def clock(model, inputs):
    times = []
    for _ in range(20):
        if DEVICE == "cpu":
            start = time.perf_counter()
            model(*inputs)
            times.append(time.perf_counter() - start)
            continue
        torch.cuda.synchronize()
        first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        first.record()
        model(*inputs)
        last.record()
        torch.cuda.synchronize()
        times.append(first.elapsed_time(last) / 1e3)
    return sorted(times)[len(times) // 2]


DEVICE = sys.argv[1]
for path in sys.argv[3:]:
    problem = (re.search("# problem: (.*)", open(path).read()) or [0, "1_Softplus"])[1]
    ours, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        os.dup2(theirs, 1)
        with torch.no_grad():
            print(json.dumps(evaluate(os.path.join(sys.argv[2], problem + ".py"), path)), flush=True)
        os._exit(0)
    os.close(theirs)
    os.waitpid(child, 0)
    said = os.read(ours, 1 << 16).decode().strip().splitlines()
    print(said[-1] if said else json.dumps({"correct": False, "died": True}), flush=True)
