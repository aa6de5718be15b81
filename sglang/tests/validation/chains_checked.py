"""Do the checks of a validation see what a chain's kernel does, and whether it is called at all?

The framework is this file: two functions, one after the other. What stands around them is the plug-in's own.
"""

import importlib
import io
import json
import pathlib
import shutil
import sys
import tempfile
import types
import unittest
from contextlib import redirect_stderr, redirect_stdout
from unittest import mock

import torch
from calls import Operator
from checks import Checks
from told import Told

# A torch before 2.1 compiles no models.
torch.compiler = getattr(torch, "compiler", None) or types.SimpleNamespace(is_compiling=lambda: False)
PACKAGE = pathlib.Path(__file__).parents[2] / "python/package"
ARRAYS = {"out": ["tokens", "hidden"], "input": ["tokens", "2 * hidden"]}
KERNEL = {
    "operator": "gated_scaled",
    "dtype": "f32",
    "arguments": {name: {"dtype": "f32", "shape": shape} for name, shape in ARRAYS.items()},
    "passed": ["input", "out"],
    "constraints": [],
    "axes": {"tokens": {"least": 1, "most": 8}, "hidden": {"values": [64]}},
    "capability": [9, 0],
    "alignment": 64,
    "chain": {
        "handed_over": ["middle"],
        "layers": [],
        "steps": [
            {"functions": [], "parameters": ["input", "middle"]},
            {"functions": [], "parameters": ["middle", "out", "by"], "only": {"by": 2}},
        ],
    },
}
DESCRIBED = {
    "call": {
        "modules": ["framework"],
        "function": "gated",
        "positional": ["input", "middle"],
        "then": [{"modules": ["framework"], "function": "scaled", "positional": ["middle", "out"]}],
    },
    "arguments": [
        {"name": "out", "dtype": "T", "shape": ARRAYS["out"], "transfer": "out"},
        {"name": "input", "dtype": "T", "shape": ARRAYS["input"], "transfer": "in", "fill": None},
        {"name": "tokens", "dtype": "i64", "shape": []},
    ],
    "between": [{"name": "middle", "dtype": "T", "shape": ARRAYS["out"], "transfer": None, "fill": None}],
    "validation": [{"tokens": 2, "hidden": 64}, {"tokens": 7, "hidden": 64}],
    "tolerance": {"f32": {"atol": 1e-6, "rtol": 1e-5}},
}


def gated(input, middle):
    half = middle.shape[1]
    middle.copy_(torch.nn.functional.silu(input[:, :half]) * input[:, half:])


def scaled(middle, out, by=2):
    out.copy_(middle * by)


def both(input, out):
    half = out.shape[1]
    out.copy_(2 * torch.nn.functional.silu(input[:, :half]) * input[:, half:])


def plugged():
    """The plug-in's package, of which one kernel is a chain's."""
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(PACKAGE, f"{folder}/plugged")
        swap = {"version": "0.0.1", "kernels": [KERNEL]}
        pathlib.Path(folder, "plugged/swap.json").write_text(json.dumps(swap))
        sys.path.insert(0, folder)
        try:
            return importlib.import_module("plugged"), importlib.import_module("plugged.chains")
        finally:
            sys.path.remove(folder)


package, chains = plugged()


def checked(kernel, hooked=("gated", "scaled")):
    """What the checks find against a kernel: how, by what was checked; and what was counted."""
    watch = chains.guard.Guard(KERNEL, capability=lambda device: (9, 0), device="cpu")
    chain = chains.placed["gated_scaled", "f32"] = chains.Chain(KERNEL, watch)
    chain.ours = kernel
    around = {"gated": (gated, chain.around_first), "scaled": (scaled, chain.around_second)}
    framework = {
        name: (lambda *args, one=one, hook=hook, name=name: hook(one, *args) if name in hooked else one(*args))
        for name, (one, hook) in around.items()
    }
    sys.modules["framework"] = types.SimpleNamespace(**framework)
    before = package.counters()["gated_scaled"]["f32"].get("hit", 0)
    with tempfile.NamedTemporaryFile() as result, redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        told = Told(result.name)
        Checks(told, Operator("gated_scaled", "f32", DESCRIBED, KERNEL, device="cpu"), package).all()
    assert len(told.result["checks"]) >= 8, told.result["checks"]
    failed = {check["what"]: check["how"] for check in told.result["checks"] if not check["passed"]}
    return failed, package.counters()["gated_scaled"]["f32"].get("hit", 0) - before


def around(hook, original):
    return lambda *args: hook(original, *args)


def layers_made(*times, kernels=(KERNEL,)):
    """A layer that does these steps each time, on arrays of their own with so many rows: whether each array that is read holds
    what it must, and how often the kernel was called. The first kernel's hooks stand outermost."""
    calls, right = [], []

    def whole(_, input, steps):
        expected, middle, out = (torch.full((input.shape[0], 64), 7.0) for _ in range(3))
        gated(input, expected)
        for step in steps:
            if step == "read":
                right.append(torch.equal(middle, expected))
            elif step == "scaled":
                second(middle, out)
                right.append(torch.allclose(out, 2 * expected))
            else:
                middle = torch.full((input.shape[0], 64), 7.0)
                (first if step == "gated" else gated_by_another)(input, middle)

    first, second = gated, scaled
    for kernel in reversed(kernels):
        chain = chains.Chain(kernel, chains.guard.Guard(kernel, capability=lambda device: (9, 0), device="cpu"))
        chain.ours = lambda input, out: calls.append(1) or both(input, out)
        first, second = around(chain.around_first, first), around(chain.around_second, second)
        whole = around(chain.around_layer, whole)
    gated_by_another = around(chain.around_first, first)
    layer = type("Layer", (), {})()
    for seed, (rows, steps) in enumerate(times):
        whole(layer, torch.randn(rows, 128, generator=torch.Generator().manual_seed(seed)), steps)
    return right, len(calls)


class ALayer(unittest.TestCase):
    def test_puts_off_the_calls_that_the_second_one_follows_and_no_others(self):
        steps = 2, ["gated", "read", "gated", "scaled"]
        self.assertEqual(layers_made(steps, steps, steps), ([True] * 6, 2))

    def test_is_watched_for_each_number_of_tokens(self):
        few, many = (2, ["gated", "read"]), (8, ["gated", "scaled"])
        self.assertEqual(layers_made(many, many, few, few, many), ([True] * 5, 2))

    def test_counts_a_function_that_calls_another_of_these_once(self):
        steps = ["gated by another", "scaled", "gated", "read"]
        self.assertEqual(layers_made((2, steps), (2, steps), (2, ["gated", *steps[1:]])), ([True] * 6, 2))

    def test_does_such_a_function_where_the_kernel_does_not_serve(self):
        steps = 2, ["gated by another", "scaled"]
        with mock.patch.object(chains.Chain, "absent", lambda *_: "not built"):
            self.assertEqual(layers_made(steps, steps, steps), ([True] * 3, 0))

    def test_is_left_alone_by_a_kernel_of_another_type(self):
        half = {name: dict(said, dtype="bf16") for name, said in KERNEL["arguments"].items()}
        other, steps = dict(KERNEL, dtype="bf16", arguments=half), (2, ["gated", "scaled", "gated", "read"])
        for kernels in ((KERNEL, other), (other, KERNEL)):
            self.assertEqual(layers_made(steps, steps, steps, kernels=kernels), ([True] * 6, 2))
        self.assertNotIn("dtype", chains.guard.all_counters()["gated_scaled"].get("bf16", {}))

    def test_where_something_else_follows_ends_in_an_error(self):
        seen, other = (2, ["gated", "scaled"]), (2, ["gated", "read", "gated", "scaled"])
        with self.assertRaisesRegex(chains.Broken, "WARPSMITH_SGLANG=off"):
            layers_made(seen, seen, other)


class AChain(unittest.TestCase):
    def test_that_is_right_passes_and_was_called_for_what_was_certified_alone(self):
        failed, hits = checked(both)
        self.assertEqual(failed, {})
        # Two shapes, and one and three rows of the larger; not none, not other sizes, not arrays out of place.
        self.assertEqual(hits, 4)

    def test_that_is_wrong_fails_where_it_was_called(self):
        failed, _ = checked(lambda input, out: (both(input, out), out[0, 3].add_(1)))
        self.assertIn("1 of 448 elements differ", failed["outputs on tokens 7, hidden 64"])
        self.assertEqual(len(failed), 4, failed)

    def test_that_changes_an_input_fails(self):
        failed, _ = checked(lambda input, out: (both(input, out), input.zero_()))
        self.assertIn("input is an input and was changed", failed["outputs on tokens 2, hidden 64"])

    def test_whose_steps_are_not_hooked_was_not_served(self):
        for hooked in ((), ("gated",), ("scaled",)):
            with self.subTest(hooked):
                failed, hits = checked(both, hooked)
                self.assertEqual(hits, 0)
                self.assertIn("outputs on tokens 2, hidden 64", failed)

    def test_is_compiled_with_the_flags_that_it_was_certified_with(self):
        asked = {}
        load_jit = lambda *args, **keywords: asked.update(keywords) or types.SimpleNamespace(run=both)
        with mock.patch.object(chains.swap, "loader", lambda: load_jit):
            with mock.patch.object(chains.swap, "differs", lambda *_: None):
                chains.built(dict(KERNEL, candidate="0" * 64, source="a.cuh", exported="a", flags=["--use_fast_math"]))
        self.assertEqual(asked["extra_cuda_cflags"], ["--use_fast_math"])

    def test_that_is_not_in_place_is_named(self):
        with self.assertRaisesRegex(LookupError, "scaled_gated f32: this chain is switched off"):
            package.chain("scaled_gated", "f32")


if __name__ == "__main__":
    unittest.main()
