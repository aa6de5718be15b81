"""Is a kernel blamed for those of SGLang's own tests that it breaks, and for no others?

SGLang's tree is a file of tests in a folder; they call a function that doubles, whose kernel is on or off by the environment
and keeps its counters as a plug-in does.
"""

import contextlib
import importlib.util
import io
import os
import pathlib
import shutil
import tempfile
import types
import unittest
from unittest import mock

import own
from told import Told

HERE = pathlib.Path(__file__).parent
DOUBLED = """
import atexit, json, os, pathlib
on, served = os.environ["WARPSMITH_SGLANG"] == "on", []

def double(x):
    if on:
        served.append(x)
        return 2 * x if x < 100 else 0
    return 2 * x

def keep():
    counters = {"other": {"bf16": {"hit": 5}}, "double": {"bf16": {"hit": len(served)}}}
    (pathlib.Path(os.environ["WARPSMITH_SGLANG_COUNTERS"]) / f"plugin-{os.getpid()}.json").write_text(json.dumps(counters))

if on:
    atexit.register(keep)
"""
RIGHT = "from doubled import double\ndef test_right(): assert double(3) == 6\n"
BROKEN_BY_THE_KERNEL = "def test_large(): assert double(100) == 200\n"
BROKEN_ANYWAY = "def test_anyway(): assert double(3) == 7\n"


def found(*files, more=()):
    """What is told of a tree with these files of tests, how the validation ends, and what lies in the tree then."""
    own.pytest.cache_clear()
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        folder = pathlib.Path(folder)
        site, tree = folder / "site", folder / "tree"
        shutil.copytree(HERE.parents[2] / "tests/putback/standin/sglang", site / "sglang")
        (site / "doubled.py").write_text(DOUBLED)
        if not importlib.util.find_spec("pytest"):
            shutil.copy(HERE / "standin/pytest.py", site)
        names = [f"tests/{place}/test_double.py" for place in range(len(files))]
        for name, text in zip(names, files):
            (tree / name).parent.mkdir(parents=True)
            (tree / name).write_text(text)
        told = Told(folder / "result.json")
        told.checked("double", "bf16", "something", True)
        own.tests_of(told, "double", {"tests": [*names, *more]}, tree, folder, site)
        ended = told.close()
        left = sorted(path.name for path in tree.rglob("*") if path.is_file())
    return types.SimpleNamespace(
        tests=told.result["tests"], not_done=told.result["not_done"], ended=ended, left=left
    )


class OwnTestsBlame(unittest.TestCase):
    def test_tests_that_pass_with_the_kernel_pass(self):
        told = found(RIGHT, more=["tests/of/another/layout.py"])
        one = told.tests[0]
        self.assertEqual((one["passed"], one["hits"], one["off"], told.ended), (True, 1, None, 0))
        self.assertEqual(one["summary"], "1 run, 0 failed, 0 skipped, 1 calls served by the kernel")

    def test_one_that_fails_only_with_the_kernel_is_blamed_on_it(self):
        told = found(RIGHT + BROKEN_BY_THE_KERNEL + BROKEN_ANYWAY)
        one = told.tests[0]
        self.assertEqual((one["passed"], told.ended), (False, 1))
        self.assertEqual([name.rsplit("::")[-1] for name in one["blamed"]], ["test_large"])
        self.assertEqual((len(one["on"]["failed"]), len(one["off"]["failed"])), (2, 1))

    def test_one_that_fails_without_the_kernel_too_is_not(self):
        told = found(RIGHT + BROKEN_ANYWAY)
        one = told.tests[0]
        self.assertEqual((one["passed"], one["blamed"], told.ended), (True, [], 0))
        self.assertIn("the same 1 fail without it", one["summary"])

    def test_where_all_fail_without_the_kernel_too_nothing_was_shown(self):
        told = found("from doubled import double\n" + BROKEN_ANYWAY)
        one = told.tests[0]
        self.assertEqual((one["passed"], one["blamed"], told.ended), (False, [], 1))

    def test_tests_that_do_not_call_the_kernel_show_nothing(self):
        told = found("from doubled import double\ndef test_nothing(): pass\n")
        one = told.tests[0]
        self.assertEqual((one["passed"], one["hits"], told.ended), (False, 0, 1))

    def test_a_file_that_cannot_be_run_shows_nothing_and_says_why(self):
        for text in ("import no_such_module\n" + RIGHT, "import os\nos._exit(3)\n", "x = 1\n"):
            told = found(text)
            one = told.tests[0]
            self.assertEqual((one["passed"], one["hits"], told.ended), (False, 0, 1), text)
            self.assertIn("pytest ended with", one["summary"])

    def test_a_file_that_takes_too_long_shows_nothing_and_says_so(self):
        with mock.patch.object(own, "SECONDS", 0.5):
            told = found(RIGHT + "def test_long(): __import__('time').sleep(60)\n")
            one = told.tests[0]
        self.assertEqual((one["passed"], told.ended), (False, 1))
        self.assertIn("it took more than 0.5 s", one["summary"])

    def test_files_of_one_name_are_counted_apart(self):
        first, second = found(RIGHT, "from doubled import double\ndef test_nothing(): pass\n").tests
        self.assertEqual((first["hits"], second["hits"]), (1, 0))

    def test_a_tree_without_the_tests_is_told(self):
        told = found(more=["tests/gone.py"])
        self.assertEqual((told.tests, told.ended), ([], 0))
        self.assertIn("none of tests/gone.py is in", told.not_done[0]["why"])

    def test_nothing_is_left_in_the_tree(self):
        self.assertEqual(found(RIGHT).left, ["test_double.py"])


if __name__ == "__main__":
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    unittest.main()
