"""SGLang's own engine on a configuration, with random weights: nothing is downloaded, no tokenizer is needed."""

import dataclasses
import difflib
import json
import pathlib
import random
import sys

# What the program reads as "this machine cannot".
CANNOT = 3


def stop(why):
    print(why, file=sys.stderr)
    sys.exit(CANNOT)


def started(model, **more):
    """The engine, or an end with a sentence that says what is missing."""
    try:
        import torch
    except ImportError as wrong:
        stop(f"{sys.executable} cannot import torch ({wrong}): name the Python that has SGLang with --python")
    if not torch.cuda.is_available():
        stop("torch sees no GPU here: run this on a machine with one, or give traces with --trace")
    try:
        import sglang
    except ImportError as wrong:
        stop(f"{sys.executable} cannot import sglang ({wrong}): install it whole, or name another Python with --python")
    # Cached prefixes would leave nothing of a second prefill, and a chunk is a part of one.
    fixed = dict(
        load_format="dummy",
        skip_tokenizer_init=True,
        disable_radix_cache=True,
        chunked_prefill_size=-1,
        random_seed=1,
        log_level="error",
    )
    asked = json.loads((pathlib.Path(model).parent / "settings.json").read_text())
    unknown = not_known(asked, sglang)
    if unknown:
        stop(unknown)
    return sglang.Engine(model_path=model, **{**fixed, **more, **asked})


def not_known(asked, sglang):
    """Says which argument the installed server does not have; nothing where it has all, or does not say what it has."""
    try:
        from sglang.srt.server_args import ServerArgs

        names = [field.name for field in dataclasses.fields(ServerArgs)]
    except (ImportError, TypeError):
        return None
    for name in asked:
        if name not in names:
            near = difflib.get_close_matches(name, names, 3, 0.5)
            version = getattr(sglang, "__version__", "of an unknown version")
            which = f"the nearest are {', '.join(near)}" if near else "see `python -m sglang.launch_server --help`"
            return f"--engine {name}: the server of SGLang {version} has no such argument; {which}"
    return None


def prompts(batch, tokens, vocabulary, seed):
    """Numbers of tokens, drawn."""
    draw = random.Random(seed)
    return [[draw.randrange(10, vocabulary - 1000) for _ in range(tokens)] for _ in range(batch)]


def generated(engine, asked, length):
    """What the engine answers, greedily, never ending early."""
    told = {"temperature": 0, "max_new_tokens": length, "ignore_eos": True}
    return engine.generate(input_ids=asked, sampling_params=told)
