"""What does one call launch, how long does each launch take, and what was it launched with? Torch's own profiler says it.

On a GPU: kernels, as CUPTI records them. On the CPU: operators, with the time that each spends itself.
"""

import json
import os
import tempfile

import torch
from torch.profiler import ProfilerActivity, profile

MOST = 128
LONGEST_NAME = 400
FACTS = [
    ("registers per thread", "registers", "register/thread", "registers a thread"),
    ("shared memory", "shared", "byte/block", "shared memory a block"),
    ("warps per SM", "warps", "warp", "warps of the launch a multiprocessor"),
    ("est. achieved occupancy %", "occupancy", "%", "occupancy, as estimated from the launch"),
]


def launches(call, device):
    """The launches of one call, those of one kernel in one shape together, the longest first."""
    call()
    if device.type == "cuda":
        torch.cuda.synchronize()
        rows = on_device(call)
    else:
        rows = on_processor(call)
    rows.sort(key=lambda row: -row["ns"])
    return rows[:MOST]


def on_processor(call):
    with profile(activities=[ProfilerActivity.CPU]) as seen:
        call()
    return [
        {"name": event.key[:LONGEST_NAME], "count": event.count, "ns": event.self_cpu_time_total * 1e3, "facts": []}
        for event in seen.key_averages()
    ]


def on_device(call):
    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        call()
        torch.cuda.synchronize()
    rows = {}
    for event in events_of(seen):
        if event.get("cat") not in ("kernel", "gpu_memcpy", "gpu_memset"):
            continue
        told = event.get("args", {})
        grid, block = told.get("grid", [0, 0, 0]), told.get("block", [0, 0, 0])
        # The trace's writer writes a kernel that is called `kernel` as `Kernel`.
        name = "kernel" if event["name"] == "Kernel" else event["name"]
        key = (name, tuple(grid), tuple(block))
        facts = [[name, told[key], unit, meaning] for key, name, unit, meaning in FACTS if key in told]
        new = {"name": name[:LONGEST_NAME], "count": 0, "ns": 0.0, "grid": grid, "block": block, "facts": facts}
        row = rows.setdefault(key, new)
        row["count"] += 1
        row["ns"] += event["dur"] * 1e3
    return list(rows.values())


def events_of(seen):
    handle, path = tempfile.mkstemp(suffix=".json")
    os.close(handle)
    try:
        seen.export_chrome_trace(path)
        with open(path, encoding="utf-8") as file:
            return json.load(file)["traceEvents"]
    finally:
        os.unlink(path)
