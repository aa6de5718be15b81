"""KernelBench's own evaluation of a candidate, unchanged, out of a checkout of it: what a user of KernelBench is told.

It is given a folder with the file `asked`, which it reads and removes before any of the candidate's text runs. It has the candidate's extensions built, says by the file `built` that it is ready for the device, waits for the file `go`, and prints what KernelBench said behind the words that it was given. KernelBench times a candidate in the process that it compares it in, and so does this: it runs as untrusted as the candidate itself, and what it says decides nothing.
"""

import contextlib
import importlib.util
import json
import os
import subprocess
import sys
import time

# As KernelBench's script eval_from_generations.py has them.
TRIALS = 5
TIMED_CALLS = 100


def build(folder):
    """Imports the candidate once, in a process of its own, so that its extensions are built. What fails here fails again, and is told then."""
    spec = importlib.util.spec_from_file_location("candidate_to_build", os.path.join(folder, "candidate.py"))
    spec.loader.exec_module(importlib.util.module_from_spec(spec))


def wait_for_the_device(folder):
    open(os.path.join(folder, "built"), "w").close()
    while not os.path.exists(os.path.join(folder, "go")):
        time.sleep(0.02)


def read(folder, name):
    with open(os.path.join(folder, name), encoding="utf-8") as file:
        return file.read()


def evaluate(folder, asked):
    problem, candidate = read(folder, "problem.py"), read(folder, "candidate.py")
    builder = subprocess.Popen(
        [sys.executable, "-I", "-B", __file__, folder, "build"], stdout=sys.stderr, stderr=sys.stderr
    )
    sys.path.insert(0, asked["sources"])
    with contextlib.redirect_stdout(sys.stderr):
        try:
            import torch
            from kernelbench import eval as kernelbench
        except ImportError as error:
            builder.kill()
            return {"why": f"its modules cannot be imported from {asked['sources']} (whoever runs candidates must be able to read it): {error}"}
        builder.wait()
        wait_for_the_device(folder)
        try:
            said = kernelbench.eval_kernel_against_ref(
                problem,
                candidate,
                num_correct_trials=TRIALS,
                num_perf_trials=TIMED_CALLS,
                measure_performance=True,
                timing_method="cuda_event",
                device=torch.device(asked["device"]),
                backend="triton",  # which loads a candidate from a file, whatever it is written in
                precision=getattr(torch, asked["precision"]),
            )
        except Exception as error:
            return {"why": f"it ended in {type(error).__name__}: {error}"}
    if said is None:
        return {"why": "it gave up, as it does where an extension is being built by another process"}
    metadata = {str(name): str(value) for name, value in (said.metadata or {}).items()}
    return {
        "correct": bool(said.compiled and said.correctness),
        "ms": said.runtime,
        "reference_ms": getattr(said, "ref_runtime", None),
        "said": "; ".join(f"{name}: {value}" for name, value in metadata.items() if "hardware" not in name),
    }


def main():
    folder = sys.argv[1]
    if sys.argv[2:] == ["build"]:
        build(folder)
        return
    asked = json.loads(read(folder, "asked"))
    os.unlink(os.path.join(folder, "asked"))
    said = evaluate(folder, asked)
    print(f"\n{asked['mark']}{json.dumps(said)}", flush=True)


if __name__ == "__main__":
    main()
