"""What was found out, line by line, and as JSON after each step."""

import contextlib
import json
import pathlib
import sys
import time
import traceback


class Told:
    def __init__(self, path):
        self.path = pathlib.Path(path)
        self.result = {
            "format": 1,
            "passed": False,
            "checks": [],
            "tests": [],
            "times": [],
            "layers": [],
            "not_done": [],
            "seconds": {},
        }

    def checked(self, operator, dtype, what, passed, how=""):
        """One check; `passed` is True or False."""
        entry = {"operator": operator, "dtype": dtype, "what": what, "passed": bool(passed), "how": how}
        self.result["checks"].append(entry)
        self.say(f"{'ok    ' if passed else 'FAILED'} {operator} {dtype}: {what}{': ' + how if how else ''}")

    def not_done(self, what, why):
        """Something that could not be done, and why: it is no success."""
        self.result["not_done"].append({"what": what, "why": why})
        self.say(f"not done: {what}: {why}")

    @contextlib.contextmanager
    def step(self, name, what, of=None):
        """A step, whose seconds are added up by name. What it raises stops that step alone: it fails where the step is a
        check `of` an operator and type, and else is told as not done."""
        begin = time.monotonic()
        try:
            yield
        except Exception as error:
            if not isinstance(error, ImportError):
                traceback.print_exc()
            if of:
                self.checked(*of, what, False, last_line(error))
            else:
                self.not_done(what, last_line(error))
        finally:
            seconds = self.result["seconds"]
            seconds[name] = round(seconds.get(name, 0) + time.monotonic() - begin, 3)
            self.keep()

    def say(self, line):
        print(line, flush=True)

    def failed(self):
        """What failed."""
        wrong = [
            f"{c['operator']} {c['dtype']}: {c['what']}" for c in self.result["checks"] if not c["passed"]
        ]
        return wrong + [f"{t['file']}: {t['summary']}" for t in self.result["tests"] if not t["passed"]]

    def keep(self):
        """Writes what is known so far: a validation may be killed."""
        self.path.write_text(json.dumps(self.result, indent=1))

    def close(self):
        """Writes the JSON and says how to end: 0 if all that was done passed and something was done."""
        failed = self.failed()
        self.result["passed"] = not failed and bool(self.result["checks"])
        self.result["failed"] = failed
        self.keep()
        done = len(self.result["checks"]) + len(self.result["tests"])
        not_done = len(self.result["not_done"])
        verdict = "passed" if self.result["passed"] else "FAILED" if done else "NOT VALIDATED"
        seconds = ", ".join(f"{name} {took:.0f} s" for name, took in self.result["seconds"].items())
        self.say(f"{verdict}: {done - len(failed)} of {done} checks, {not_done} not done; {seconds}")
        for line in failed:
            self.say(f"  failed: {line}")
        return 0 if self.result["passed"] else 1


def last_line(error):
    """An exception in a line: its last, or of CUDA's, which end with advice, the first."""
    text = str(error).strip().splitlines()
    line = text[0 if text[0].startswith("CUDA error") else -1] if text else ""
    return f"{type(error).__name__}: {line}"[:300]


if __name__ == "__main__":
    sys.exit("this is a part of validate.py")
