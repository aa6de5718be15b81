"""Does the rule of comparison in Python say what cases.json says, and never less where it takes a short way?"""

import json
import pathlib
import sys
import unittest

import torch

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE.parents[1] / "harness"))

import compare  # noqa: E402
import draw  # noqa: E402
import tolerance  # noqa: E402

CASES = json.loads((HERE / "cases.json").read_text())["cases"]
for case in CASES:
    case.update(atol=float(case["atol"]), rtol=float(case["rtol"]))
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
CASES = [case for case in CASES if case["dtype"] in DTYPES]


def tensor(case, side):
    values = [float(one) if isinstance(one, str) else one for one in case[side]]
    return torch.tensor(values * case.get("repeat", 1), dtype=DTYPES[case["dtype"]])


class Rule(unittest.TestCase):
    def test_every_case_has_its_wrong_elements(self):
        for case in CASES:
            found = tolerance.wrong(tensor(case, "expected"), tensor(case, "got"), case["atol"], case["rtol"])
            self.assertEqual(int(found.sum()), case["wrong"], case)

    def test_a_problems_outputs_are_compared_by_it(self):
        for case in CASES:
            right, got = tensor(case, "expected"), tensor(case, "got")
            if right.is_floating_point():
                found = compare.elements(right, got, case["atol"], case["rtol"])
                self.assertEqual(found["wrong"], case["wrong"], case)

    def test_the_short_way_lets_nothing_pass_that_the_rule_does_not(self):
        for case in CASES:
            right, got = tensor(case, "expected"), tensor(case, "got")
            short = compare.all_clearly_same([[("output", right)]], [[("output", got)]], case["atol"], case["rtol"])
            self.assertFalse(short and case["wrong"], case)
        # It is taken at all.
        near = torch.tensor([1.0, -2.0]), torch.tensor([1.00001, -2.00001])
        self.assertTrue(tolerance.clearly_right([near], 1e-4, 1e-4))

    def test_whole_numbers_of_a_problem_must_be_equal(self):
        right, got = torch.tensor([100, 7, 5]), torch.tensor([101, 7, 5])
        self.assertEqual(compare.elements(right, got, 10.0, 1.0)["wrong"], 1)
        flags = torch.tensor([True, False])
        self.assertEqual(compare.elements(flags, ~flags, 10.0, 1.0)["wrong"], 2)

    def test_complex_numbers_are_compared_by_their_distance(self):
        right = torch.tensor([3 + 4j, 3 + 4j, complex("nan"), complex("inf")])
        got = torch.tensor([3 + 4.5j, 3 + 4.6j, complex("nan"), complex("inf")])
        self.assertEqual(tolerance.wrong(right, got, 0.0, 0.1).tolist(), [False, True, True, False])

    def test_floats_of_every_width_are_drawn_with_both_signs_and_audited(self):
        for dtype in (one for one in DTYPES.values() if one.is_floating_point):
            positive = (torch.arange(16) / 16).to(dtype)
            both = draw.signed([positive])
            self.assertEqual(both[0].dtype, dtype)
            self.assertLess(float(both[0].double().min()), -2.5, dtype)
            self.assertGreater(float(both[0].double().max()), 2.0, dtype)
            told = compare.audit([[("output", positive)]] * 2, [[positive]] * 2, 1e-2, 1e-2)
            self.assertEqual(told, ["the output of other inputs passes: it is insensitive to its inputs", "an input passes for its output"], dtype)
            self.assertTrue(compare.has_nan(torch.tensor([1.0, float("nan")]).to(dtype)), dtype)


if __name__ == "__main__":
    unittest.main()
