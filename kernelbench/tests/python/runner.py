"""What both sides do alike before they are timed, so that neither's memory lies better than the other's: runner.py HARNESS."""

import sys
import unittest
import weakref
from unittest import mock

sys.path.insert(0, sys.argv.pop())

import candidate  # noqa: E402
import torch  # noqa: E402


def runner():
    made = candidate.Runner({"device": "cpu", "seed": 1, "threads": 1, "tf32": False})
    made.model = lambda x: x + 1
    made.inputs = [[torch.ones(4)], [torch.ones(4)]]
    return made


class Memory(unittest.TestCase):
    def test_nothing_of_before_is_left_when_places_are_made(self):
        made, seen = runner(), []
        made.run({"slots": [0]})
        output = weakref.ref(made.kept[0])

        class Places:
            def __init__(self, *_):
                seen.append((output() is None, before() is None))

        before = lambda: made.places  # noqa: E731
        with mock.patch.object(candidate.scatter, "Scatter", Places):
            made.randomize_allocations({"sizes": [16], "count": 1})
            self.assertIsInstance(made.places, Places)
            first = weakref.ref(made.places)
            before = first
            made.randomize_allocations({"sizes": [16], "count": 1})
        self.assertEqual(seen, [(True, True), (True, True)])

    def test_what_a_call_needs_beside_its_output_is_read_off_requests_of_one(self):
        made, used = runner(), iter([0, 7, 0, 100, 0, 5])
        made.allocated = lambda most=False: next(used)
        made.run({"slots": [0]})
        self.assertEqual(made.beside, 7)
        made.run({"slots": [0, 1]})
        self.assertEqual(made.beside, 7)


if __name__ == "__main__":
    unittest.main()
