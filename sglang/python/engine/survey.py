"""Records traces of a prefill and of decode steps, as SGLang's scheduler takes them by stage.

python survey.py MODEL OUT BATCHxTOKENS.. Without CUDA graphs, of whose kernels a trace has no shapes: a kernel takes as
long in one as outside. OUT/traces.json names what was recorded, pair by pair: what was before an engine's end stays.
"""

import json
import pathlib
import shutil
import sys
import time

from engine import generated, prompts, started, stop

# Decode steps in a trace.
STEPS = 4
# A trace is written when its stage has ended, by the scheduler's process.
PATIENCE_S = 120


def main(model, out, pairs):
    vocabulary = json.loads((pathlib.Path(model) / "config.json").read_text())["vocab_size"]
    engine = started(model, disable_cuda_graph=True)
    index = out / "traces.json"
    recorded = json.loads(index.read_text()) if index.exists() else []
    try:
        for batch, length in pairs:
            folder = out / f"{batch}x{length}"
            record(engine, prompts(batch, length, vocabulary, 1), folder)
            recorded += [
                dict(file=str(file), stage=stage, batch=batch, tokens=length, steps=steps)
                for stage, steps, file in found(folder)
            ]
            index.write_text(json.dumps(recorded, indent=1))
    finally:
        engine.shutdown()


def record(engine, asked, folder):
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    # Everything that is compiled at its first call is compiled now.
    generated(engine, asked, STEPS + 4)
    engine.start_profile(
        output_dir=str(folder),
        num_steps=STEPS,
        activities=["CPU", "GPU"],
        profile_by_stage=True,
        record_shapes=True,
        with_stack=False,
    )
    generated(engine, asked, STEPS + 4)
    waited = time.monotonic() + PATIENCE_S
    while len(whole(folder)) < 2:
        if time.monotonic() > waited:
            stop(f"{folder}: the engine wrote {len(whole(folder))} traces in {PATIENCE_S} s, and 2 were expected")
        time.sleep(1)


def whole(folder):
    """Traces that no longer grow."""
    files = sorted(folder.glob("*.json*"))
    sizes = [file.stat().st_size for file in files]
    time.sleep(2)
    return [file for file, size in zip(files, sizes) if size and file.stat().st_size == size]


def found(folder):
    """The prefill is what the scheduler made of all prompts at once, as one step."""
    for file in whole(folder):
        decode = "DECODE" in file.name.upper()
        yield ("decode", STEPS, file) if decode else ("prefill", 1, file)


if __name__ == "__main__":
    _, model, out, *pairs = sys.argv
    main(model, pathlib.Path(out), [tuple(map(int, pair.split("x"))) for pair in pairs])
