"""Does a hook around another library's function serve what was certified through the framework's own, and let go again?

The plug-in is written here with a swap.json of our own, and sglang and torch are the stand-ins of tests/putback.
"""

import collections
import importlib
import json
import os
import pathlib
import shutil
import sys
import tempfile
import types
import unittest
from unittest import mock

from sglang.srt.plugins.hook_registry import HookRegistry
from torch import Tensor, compiler

PACKAGE = pathlib.Path(__file__).parents[2] / "python/package"
FAR = 1 << 40
HOOK = {
    "path": "other_library.norm",
    "parameters": ["x", "weight", "eps", "fast"],
    "passed": ["x", "weight", "eps"],
    "through": ["framework.not_here.norm", "framework.norm"],
}


def kernel(dtype, operator="norm"):
    array = lambda *shape: {"dtype": dtype, "shape": shape}
    return {
        "operator": operator,
        "dtype": dtype,
        "level": "J",
        "arguments": {"x": array("tokens", "hidden"), "weight": array("hidden")},
        "constraints": ["hidden % 8 == 0"],
        "axes": {"tokens": {"least": 1, "most": 8}, "hidden": {"values": [64]}},
        "capability": [9, 0],
        "alignment": 256,
        "functions": [HOOK],
    }


class Story:
    """A plug-in of two kernels for one function, put in place."""

    def __init__(self, switched="on", kernels=None):
        self.called = []
        self.other = types.ModuleType("other_library")
        self.other.norm = self.original = lambda *args, **more: self.called.append(("theirs", *args, more))
        framework = types.ModuleType("framework")
        framework.norm = lambda *args: self.called.append(("ours", *args))
        sys.modules.update(other_library=self.other, framework=framework)
        with tempfile.TemporaryDirectory() as folder, mock.patch.dict(os.environ, WARPSMITH_SGLANG=switched):
            shutil.copytree(PACKAGE, f"{folder}/plugged")
            swap = {"version": "0.0.1", "kernels": kernels or [kernel("bf16"), kernel("fp16")]}
            pathlib.Path(folder, "plugged/swap.json").write_text(json.dumps(swap))
            for name in [name for name in sys.modules if name.split(".")[0] == "plugged"]:
                del sys.modules[name]
            with mock.patch.object(sys, "path", [folder, *sys.path]):
                self.package = importlib.import_module("plugged")
                HookRegistry.hooks.clear()
                self.package.register()
                HookRegistry.apply_hooks()
        self.swap = sys.modules["plugged.swap"]

    def served(self, tokens=4, hidden=64, dtype="torch.bfloat16", x=None, **more):
        """Calls the library's function: who served, and what was counted by type."""
        before = self.counted()
        weight = Tensor((hidden,), dtype, start=FAR)
        self.other.norm(x or Tensor((tokens, hidden), dtype), weight, 1e-6, **more)
        return self.called[-1][0], dict(self.counted() - before)

    def counted(self):
        told = self.package.counters().get("norm by other_library.norm", {})
        return collections.Counter({(dtype, why): n for dtype, whys in told.items() for why, n in whys.items()})


class HooksLetGo(unittest.TestCase):
    def test_what_was_certified_goes_through_the_frameworks_own_function(self):
        story = Story()
        self.assertEqual(story.served(), ("ours", {("bf16", "hit"): 1}))
        self.assertEqual(story.served(dtype="torch.float16"), ("ours", {("fp16", "hit"): 1}))
        # By name too, and without what the framework's function does not take.
        x, weight = Tensor((4, 64)), Tensor((64,), start=FAR)
        story.other.norm(x, eps=1e-5, weight=weight, fast=True)
        self.assertEqual(story.called[-1], ("ours", x, weight, 1e-5))

    def test_the_library_serves_everything_else_with_the_very_arguments(self):
        story = Story()
        self.assertEqual(story.served(tokens=9), ("theirs", {("bf16", "axis tokens"): 1}))
        self.assertEqual(story.served(hidden=72), ("theirs", {("bf16", "axis hidden"): 1}))
        self.assertEqual(story.served(hidden=60), ("theirs", {("bf16", "constraint"): 1}))
        self.assertEqual(story.served(x=Tensor((4, 64), start=16)), ("theirs", {("bf16", "alignment"): 1}))
        # A type that no kernel is for is counted once.
        self.assertEqual(story.served(dtype="torch.float32"), ("theirs", {("fp16", "dtype"): 1}))
        x, weight = Tensor((9, 64)), Tensor((64,), start=FAR)
        story.other.norm(x, weight, 1e-6, fast=True)
        self.assertEqual(story.called[-1], ("theirs", x, weight, 1e-6, {"fast": True}))

    def test_it_lets_go_while_the_original_is_asked_for_and_takes_hold_again(self):
        story = Story()
        story.package.use(False)
        self.assertEqual(story.served()[0], "theirs")
        story.package.use(True)
        self.assertEqual(story.served()[0], "ours")

    def test_it_lets_go_where_its_kernel_is_not_in_place(self):
        story = Story()
        story.swap.absent.add(("norm", "bf16"))
        self.assertEqual(story.served(), ("theirs", {("bf16", "not in place"): 1}))
        self.assertEqual(story.served(dtype="torch.float16")[0], "ours")

    def test_it_lets_go_while_torch_compiles(self):
        story = Story()
        with mock.patch.object(compiler, "is_compiling", lambda: True):
            self.assertEqual(story.served(), ("theirs", {}))

    def test_what_is_switched_off_is_never_hooked(self):
        for switched in ("off", "another"):
            story = Story(switched)
            self.assertIs(story.other.norm, story.original)
        self.assertIsNot(Story("norm").other.norm, story.original)

    def test_an_operator_that_is_switched_on_alone_is_hooked_alone(self):
        story = Story("norm", [kernel("bf16"), kernel("fp16", "another")])
        self.assertEqual(story.served()[0], "ours")
        self.assertEqual(story.served(dtype="torch.float16")[0], "theirs")

    def test_a_framework_without_the_function_is_told(self):
        story = Story()
        del sys.modules["framework"].norm
        with self.assertRaisesRegex(ImportError, "none of framework.not_here.norm, framework.norm is in"):
            story.served()


if __name__ == "__main__":
    unittest.main()
