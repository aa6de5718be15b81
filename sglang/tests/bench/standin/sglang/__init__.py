"""Stands in for SGLang: an engine that takes a while for each token, less with a plug-in on, and dies as often as it is told."""

import json
import os
import pathlib
import time

__version__ = "0.0"
HERE = pathlib.Path(os.environ["STANDIN"])


class Engine:
    def __init__(self, **told):
        starts = HERE / "starts"
        before = starts.read_text() if starts.exists() else ""
        starts.write_text(before + "s")
        self.on = os.environ["WARPSMITH_SGLANG"] == "on"
        if self.on:
            counters = pathlib.Path(os.environ["WARPSMITH_SGLANG_COUNTERS"])
            counters.mkdir(parents=True, exist_ok=True)
            counted = {"silu_and_mul": {"bf16": {"hit": 3}}}
            (counters / f"plugin-{os.getpid()}.json").write_text(json.dumps(counted))
        if str(len(before) + 1) in os.environ["STANDIN_DIES_AT"].split():
            os._exit(1)

    def generate(self, input_ids, sampling_params):
        length = sampling_params["max_new_tokens"]
        time.sleep(length * (0.002 if self.on else 0.004))
        return [{"output_ids": list(range(length))} for _ in input_ids]

    def shutdown(self):
        pass
