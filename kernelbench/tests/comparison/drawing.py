"""Where are inputs drawn, and what is said where there is no memory for them?"""

import contextlib
import pathlib
import sys
import unittest
import unittest.mock

import torch

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "harness"))

import verifier  # noqa: E402


CUDA = torch.device("cuda")


def on_gpu(names):
    """A verifier of a problem as it is where there is a GPU, with a problem that never reaches it."""
    one = verifier.Verifier.__new__(verifier.Verifier)
    one.device, one.names, one.dtype, one.casts_all = CUDA, names, torch.float32, False
    return one


@unittest.mock.patch.object(torch, "device", contextlib.nullcontext)  # this machine may have none
class Drawing(unittest.TestCase):
    def refused_at(self, calls):
        """Inputs that the device refuses memory for in these calls."""
        asked = []

        def get_inputs():
            asked.append(len(asked))
            if asked[-1] in calls:
                raise torch.cuda.OutOfMemoryError("CUDA out of memory")
            return []

        return get_inputs, asked

    def test_what_is_short_of_memory_is_said_at_once_and_not_drawn_on_the_processor(self):
        get_inputs, asked = self.refused_at([0])
        with self.assertRaises(torch.cuda.OutOfMemoryError):
            on_gpu({"get_inputs": get_inputs}).generate(0)
        self.assertEqual(asked, [0])

    def test_a_shortage_is_told_from_other_errors_whoever_words_it(self):
        class Failing:
            def step(self, message):
                raise message["error"]

        words = ["CUDA error: out of memory", "CUBLAS_STATUS_ALLOC_FAILED when calling cublasCreate"]
        short = [torch.cuda.OutOfMemoryError("x"), verifier.memory.Full("x"), *(RuntimeError(word) for word in words)]
        for error in short:
            self.assertTrue(verifier.answer(Failing(), {"do": "step", "error": error})["raised"]["memory"], error)
        said = verifier.answer(Failing(), {"do": "step", "error": RuntimeError("an illegal memory access")})
        self.assertFalse(said["raised"]["memory"])

    def test_what_cannot_be_drawn_on_the_device_is_drawn_on_the_processor(self):
        asked = []

        def get_inputs():
            asked.append(len(asked))
            if asked[-1] == 0:
                raise NotImplementedError("not on this device")
            return []

        self.assertEqual(on_gpu({"get_inputs": get_inputs}).generate(0), [])
        self.assertEqual(asked, [0, 1])

    def test_casts_that_there_was_no_memory_to_try_are_not_taken_for_casts_that_fail(self):
        get_inputs, _ = self.refused_at([1])
        drawn = [torch.tensor([True])]
        one = on_gpu({"get_inputs": lambda: get_inputs() + drawn})
        one.cast = lambda tensor: tensor
        one.generate = lambda seed: one.names["get_inputs"]()
        with self.assertRaises(torch.cuda.OutOfMemoryError):
            one.try_casts(Here())


class Here(torch.nn.Module):
    """A model that stays where it is."""

    def to(self, **_):
        return self

    def forward(self, x):
        return x


if __name__ == "__main__":
    unittest.main()
