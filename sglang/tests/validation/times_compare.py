"""Are times asked for as they are reported, each way as it is called?"""

import collections
import contextlib
import io
import sys
import tempfile
import types
import unittest
from unittest import mock

import clock
import times
from calls import Operator
from told import Told

DESCRIBED = {
    "call": {"modules": ["framework"], "function": "operator", "positional": ["x"]},
    "arguments": [{"name": "x", "dtype": "T", "shape": ["tokens"], "transfer": "in-out", "fill": "ones"}],
    "functions": [{"path": "no_such_library.operator", "passed": ["x"]}],
    "loop": [{"tokens": 4}, {"tokens": 8}, {"tokens": 512}],
    "validation": [{"tokens": 5}],
}
AXES = {"axes": {"tokens": {"least": 1, "most": 8}}}


class Package:
    """A plug-in that counts, and remembers which way was chosen last."""

    def __init__(self):
        self.ours, self.hits = True, 0

    def use(self, ours):
        self.ours = ours

    def counters(self):
        return {"operator": {"f32": {"hit": self.hits}}}


class Framework:
    """Takes 4 us with the original and with the extract, and 1 us with the kernel, or 2 us for eight tokens."""

    def __init__(self, extract_serves=True, breaks=None):
        self.package, self.unchanged = Package(), Package()
        self.extract_serves, self.breaks = extract_serves, breaks

    def operator(self, x):
        if len(x) == self.breaks:
            raise RuntimeError("CUDA error: out of memory")
        if self.package.ours:
            self.package.hits += 1
            return 2e-6 if len(x) == 8 else 1e-6
        self.unchanged.hits += self.unchanged.ours and self.extract_serves
        return 4e-6

    def compare(self, ways, make, repetitions, device):
        """In the place of the clock's, which needs a GPU."""
        assert device == "cpu"
        for way in ways:
            way.choose()
            way.samples = [way.call(make(i)) for i in range(repetitions)]
            way.host = [0.0]

    def timed(self, unchanged=True):
        sys.modules["framework"] = types.SimpleNamespace(operator=self.operator)
        operator = Operator("operator", "f32", DESCRIBED, AXES, device="cpu")
        quiet = contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO())
        with tempfile.NamedTemporaryFile() as result, quiet[0], quiet[1]:
            told = Told(result.name)
            with mock.patch.object(clock, "compare", self.compare):
                times.times(told, operator, self.package, self.unchanged if unchanged else None, 5, speed=1e12)
        return told.result


class TimesCompare(unittest.TestCase):
    def test_each_way_is_timed_as_it_is_called_on_the_certified_shapes(self):
        found = Framework().timed()
        self.assertEqual([entry["shape"]["tokens"] for entry in found["times"]], [4, 8, 5])
        samples = {"original": [4.0] * 5, "unchanged": [4.0] * 5, "optimized": [1.0] * 5}
        self.assertEqual(found["times"][0]["samples_us"], samples)
        self.assertEqual([entry["device_us"]["optimized"] for entry in found["times"]], [1, 2, 1])
        self.assertEqual([entry["group"] for entry in found["times"]], ["loop", "loop", "validation"])
        # Eight numbers of four bytes, read and written, at 1 TB/s.
        self.assertAlmostEqual(found["times"][1]["floor_us"] * 1e6, 64)
        self.assertEqual(found["checks"], [])

    def test_without_the_unchanged_text_there_is_no_control(self):
        found = Framework().timed(unchanged=False)
        self.assertEqual(set(found["times"][0]["device_us"]), {"original", "optimized"})
        self.assertEqual(set(found["times"][0]["samples_us"]), {"original", "optimized"})

    def test_a_control_that_never_served_fails(self):
        found = Framework(extract_serves=False).timed()
        self.assertEqual([check["what"] for check in found["checks"]], ["the unchanged extract was called"])
        self.assertFalse(found["checks"][0]["passed"])

    def test_what_breaks_off_is_told_and_the_other_shapes_are_timed(self):
        framework = Framework(breaks=5)
        found = framework.timed()
        self.assertEqual([entry["shape"]["tokens"] for entry in found["times"]], [4, 8])
        told = collections.Counter(one["what"] for one in found["not_done"])
        wanted = {"timing operator f32 tokens 5": 1, "timing operator f32 by no_such_library.operator": 1}
        self.assertEqual(told, wanted)
        # It broke off with the original chosen.
        self.assertTrue(framework.package.ours and not framework.unchanged.ours)


if __name__ == "__main__":
    unittest.main()
