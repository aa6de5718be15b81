"""Records traces of a prefill and of decode steps, as SGLang's scheduler takes them by stage.

python survey.py MODEL OUT BATCHES TOKENS, with commas. Without CUDA graphs, of whose kernels a trace has no shapes: a
kernel takes as long in one as outside. OUT/traces.json names what was recorded.
"""

import json
import pathlib
import sys
import time

from engine import generated, prompts, started, stop

# Decode steps in a trace.
STEPS = 4
# A trace is written when its stage has ended, by the scheduler's process.
PATIENCE_S = 120


def main(model, out, batches, tokens):
    vocabulary = json.loads((pathlib.Path(model) / "config.json").read_text())["vocab_size"]
    engine = started(model, disable_cuda_graph=True)
    recorded = []
    try:
        for batch in batches:
            for length in tokens:
                folder = out / f"{batch}x{length}"
                record(engine, prompts(batch, length, vocabulary, 1), folder)
                recorded += [
                    dict(file=str(file), stage=stage, batch=batch, tokens=length, steps=steps)
                    for stage, steps, file in found(folder)
                ]
    finally:
        engine.shutdown()
    (out / "traces.json").write_text(json.dumps(recorded, indent=1))


def record(engine, asked, folder):
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
    _, model, out, batches, tokens = sys.argv
    numbers = lambda text: [int(part) for part in text.split(",")]
    main(model, pathlib.Path(out), numbers(batches), numbers(tokens))
