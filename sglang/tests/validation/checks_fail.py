"""Do the checks of a validation see a kernel that does otherwise than the original?

The framework is this file: an operator, an original and a kernel in front of it, with a guard that counts as the plug-in's.
"""

import collections
import io
import itertools
import json
import math
import pathlib
import sys
import tempfile
import types
import unittest
from contextlib import redirect_stderr, redirect_stdout

import torch
from calls import Operator
from checks import Checks
from told import Told

GATED = {
    "call": {"modules": ["framework"], "function": "operator", "positional": ["input", "out"]},
    "arguments": [
        {"name": "out", "dtype": "T", "shape": ["tokens", "hidden"], "transfer": "out"},
        {"name": "input", "dtype": "T", "shape": ["tokens", "2 * hidden"], "transfer": "in", "fill": None},
        {"name": "tokens", "dtype": "i64", "shape": []},
    ],
    "validation": [{"tokens": 2, "hidden": 64}, {"tokens": 7, "hidden": 64}],
    "tolerance": {"f32": {"atol": 1e-6, "rtol": 1e-5}},
}
MERGED = dict(
    GATED,
    call={"modules": ["framework"], "function": "operator", "positional": ["s_a", "s_b", "out"]},
    arguments=[
        {"name": "out", "dtype": "T", "shape": ["tokens", "hidden"], "transfer": "out"},
        *(
            {"name": name, "dtype": "T", "shape": ["tokens", "hidden"], "transfer": "in", "fill": "ones"}
            for name in ("s_a", "s_b")
        ),
    ],
)
CASES = pathlib.Path(__file__).parents[3] / "kernelbench/tests/comparison/cases.json"
DTYPES = {
    "f32": torch.float32,
    "f64": torch.float64,
    "f16": torch.float16,
    "bf16": torch.bfloat16,
    "i32": torch.int32,
    "i64": torch.int64,
}
# What torch has since 2.1.
if hasattr(torch, "float8_e4m3fn"):
    DTYPES["e4m3"] = torch.float8_e4m3fn
AXES = {"axes": {"tokens": {"least": 1, "most": 8}, "hidden": {"values": [64]}}}


def gated(input, out):
    half = out.shape[1]
    out.copy_(torch.nn.functional.silu(input[:, :half]) * input[:, half:])


def merged(s_a, s_b, out):
    """Infinities of either sign count as minus infinity."""
    s_a, s_b = (torch.where(s.isinf(), torch.full_like(s, -math.inf), s) for s in (s_a, s_b))
    out.copy_(torch.logaddexp(s_a, s_b))


def certified(*arrays):
    """As a guard: sizes, and where arrays lie."""
    rows, size = arrays[-1].shape
    return 1 <= rows <= 8 and size == 64 and all(array.data_ptr() % 64 == 0 for array in arrays)


class Plugin:
    """The original, and the kernel where the guard lets it."""

    def __init__(self, original, kernel, guard=certified):
        self.original, self.kernel, self.guard = original, kernel, guard
        self.ours, self.counted = True, collections.Counter(hit=0)

    def use(self, ours):
        self.ours = ours

    def counters(self):
        return {"operator": {"f32": dict(self.counted)}}

    def operator(self, *arrays):
        hit = self.ours and self.guard(*arrays)
        self.counted["hit" if hit else "axis" if self.ours else "switched off"] += 1
        (self.kernel if hit else self.original)(*arrays)


def failed(kernel, guard=certified, original=gated, described=GATED):
    """What the checks find against a kernel: how, by what was checked."""
    plugin = Plugin(original, kernel, guard)
    sys.modules["framework"] = types.SimpleNamespace(operator=plugin.operator)
    with tempfile.NamedTemporaryFile() as result, redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        told = Told(result.name)
        Checks(told, Operator("operator", "f32", described, AXES, device="cpu"), plugin).all()
    assert len(told.result["checks"]) >= 9, told.result["checks"]
    return {check["what"]: check["how"] for check in told.result["checks"] if not check["passed"]}


def differences(described, right, got, exact):
    """What the checks say of this output beside that of the original."""
    plugin = Plugin(gated, gated)
    sys.modules["framework"] = types.SimpleNamespace(operator=plugin.operator)
    checks = Checks(None, Operator("operator", "f32", described, AXES, device="cpu"), plugin)
    return checks.differ({"out": right}, {"out": got}, exact)


def then(after):
    """The original, and something behind it."""

    def kernel(input, out):
        gated(input, out)
        after(input, out)

    return kernel


class ChecksFail(unittest.TestCase):
    def test_a_kernel_that_gives_the_same_passes(self):
        self.assertEqual(failed(gated), {})
        self.assertEqual(failed(merged, original=merged, described=MERGED), {})

    def test_one_within_the_tolerance_passes_and_one_beyond_it_fails(self):
        self.assertEqual(failed(then(lambda input, out: out.mul_(1 + 5e-6))), {})
        self.assertIn("outputs on tokens 7, hidden 64", failed(then(lambda input, out: out.mul_(1 + 5e-5))))

    def test_one_wrong_element_is_found_and_named(self):
        found = failed(then(lambda input, out: out[-1, 5].add_(0.5)))
        self.assertIn("1 of 448 elements differ; the first, 389, is", found["outputs on tokens 7, hidden 64"])

    def test_an_element_that_is_not_written_is_found(self):
        found = failed(lambda input, out: gated(input[:, 1:-1], out[:, 1:]))
        self.assertIn("elements differ; the first, 0, is", found["outputs on tokens 2, hidden 64"])

    def test_an_input_that_is_changed_is_found_though_the_outputs_are_right(self):
        found = failed(then(lambda input, out: input[0, 0].add_(1)))
        self.assertEqual(found["outputs on tokens 2, hidden 64"], "input is an input and was changed")

    def test_a_kernel_that_never_serves_is_found_though_the_outputs_are_right(self):
        found = failed(gated, guard=lambda *arrays: False)
        self.assertEqual(found["outputs on tokens 2, hidden 64"], "the kernel did not serve it: {'axis': 1}")

    def test_a_kernel_that_serves_what_was_not_certified_is_found_though_the_outputs_are_right(self):
        found = failed(gated, guard=lambda *arrays: True)
        why = "the kernel served what it was not certified for"
        for what in ("tokens 9, hidden 64", "tokens 7, hidden 56", "tokens 7, hidden 68"):
            self.assertEqual(found[f"{what} was not certified"], why)
        self.assertEqual(found["0 rows (tokens 0, hidden 64)"], why)
        self.assertEqual(found["arrays 16 bytes off are left to the original"], "the kernel served it")

    def test_what_is_left_to_the_original_must_have_its_very_bits(self):
        nearly = itertools.cycle([1, 1 + 2e-6])
        found = failed(gated, original=then(lambda input, out: out.mul_(next(nearly))))
        exact = [f"tokens {shape} was not certified" for shape in ("9, hidden 64", "7, hidden 56", "7, hidden 68")]
        self.assertEqual(list(found), [*exact, "arrays 16 bytes off are left to the original"])

    def test_a_kernel_that_raises_is_found_and_the_other_checks_go_on(self):
        def kernel(input, out):
            if len(input) == 3:
                raise RuntimeError("CUDA error: an illegal memory access")
            gated(input, out)

        found = failed(kernel)
        self.assertEqual(list(found), ["3 rows (tokens 3, hidden 64)"])
        self.assertIn("the original raised nothing, with the kernel it raised", found[list(found)[0]])

    def test_where_both_raise_nothing_was_compared(self):
        def broken(input, out):
            raise RuntimeError("no such kernel")

        found = failed(broken, original=broken)
        self.assertIn("nothing was compared", found["outputs on tokens 2, hidden 64"])

    def test_a_check_that_breaks_off_has_failed_and_the_others_go_on(self):
        arguments = [*GATED["arguments"], {"name": "more", "dtype": "T", "shape": ["rows"], "transfer": "in"}]
        found = failed(gated, described=dict(GATED, arguments=arguments))
        self.assertEqual(found["3 rows (tokens 3, hidden 64)"], "NameError: name 'rows' is not defined")

    def test_infinities_of_either_sign_are_tried_on_either_side(self):
        for side, infinity in itertools.product((0, 1), (math.inf, -math.inf)):

            def kernel(*arrays):
                arrays = list(arrays)
                arrays[side] = torch.where(arrays[side] == infinity, torch.zeros(()), arrays[side])
                merged(*arrays)

            found = failed(kernel, original=merged, described=MERGED)
            self.assertEqual(list(found), ["infinite log-sum-exps of either sign"], (side, infinity))

    def test_outputs_are_compared_by_the_rule_that_everyone_passes_the_cases_of(self):
        for case in json.loads(CASES.read_text())["cases"]:
            if case["dtype"] not in DTYPES:
                continue
            described = dict(GATED, tolerance={"f32": {name: float(case[name]) for name in ("atol", "rtol")}})
            right, got = (
                torch.tensor(
                    [float(one) if isinstance(one, str) else one for one in case[side]] * case.get("repeat", 1),
                    dtype=DTYPES[case["dtype"]],
                )
                for side in ("expected", "got")
            )
            found = differences(described, right, got, exact=False)
            self.assertEqual(found.split()[1] if found else "0", str(case["wrong"]), case)

    def test_where_the_original_must_have_served_the_bits_must_be_its_own(self):
        one = lambda value: torch.tensor([value])
        for a, b in [(0.0, -0.0), (math.inf, -math.inf), (math.nan, 1.0), (1.0, math.nextafter(1, 2) + 1e-6)]:
            self.assertTrue(differences(GATED, one(a), one(b), exact=True), (a, b))
        for same in (math.inf, -math.inf, math.nan, 0.0):
            self.assertFalse(differences(GATED, one(same), one(same), exact=True), same)

    def test_no_shape_that_may_be_served_is_a_failure(self):
        plugin = Plugin(gated, gated)
        sys.modules["framework"] = types.SimpleNamespace(operator=plugin.operator)
        with tempfile.NamedTemporaryFile() as result, redirect_stdout(io.StringIO()):
            told = Told(result.name)
            operator = Operator("operator", "f32", dict(GATED, validation=[]), AXES, device="cpu")
            Checks(told, operator, plugin).all()
            self.assertEqual(told.close(), 1)

    def test_a_step_that_breaks_off_is_told_with_its_seconds_and_stops_nothing(self):
        with tempfile.NamedTemporaryFile() as result, redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
            told = Told(result.name)
            told.checked("operator", "f32", "something", True)
            with told.step("times", "timing"):
                raise RuntimeError("no memory")
            self.assertEqual(told.result["not_done"], [{"what": "timing", "why": "RuntimeError: no memory"}])
            self.assertEqual(told.close(), 0)
            with told.step("checks", "it can be called", of=("operator", "f32")):
                raise RuntimeError("no function")
            self.assertEqual((told.close(), set(told.result["seconds"])), (1, {"times", "checks"}))


if __name__ == "__main__":
    unittest.main()
