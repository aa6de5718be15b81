"""What was found out, line by line, and as JSON at the end."""

import json
import pathlib
import sys


class Told:
    def __init__(self):
        self.result = {"format": 1, "checks": [], "tests": [], "times": [], "layers": [], "not_done": []}

    def checked(self, operator, dtype, what, passed, how=""):
        """One check; `passed` is True or False."""
        entry = {"operator": operator, "dtype": dtype, "what": what, "passed": bool(passed), "how": how}
        self.result["checks"].append(entry)
        self.say(f"{'ok    ' if passed else 'FAILED'} {operator} {dtype}: {what}{': ' + how if how else ''}")

    def not_done(self, what, why):
        """Something that could not be done, and why: it is no success."""
        self.result["not_done"].append({"what": what, "why": why})
        self.say(f"not done: {what}: {why}")

    def say(self, line):
        print(line, flush=True)

    def failed(self):
        """What failed."""
        wrong = [
            f"{c['operator']} {c['dtype']}: {c['what']}" for c in self.result["checks"] if not c["passed"]
        ]
        return wrong + [f"{t['file']}: {t['summary']}" for t in self.result["tests"] if not t["passed"]]

    def close(self, path):
        """Writes the JSON and says how to end: 0 if all that was done passed and something was done."""
        failed = self.failed()
        self.result["passed"] = not failed and bool(self.result["checks"])
        self.result["failed"] = failed
        pathlib.Path(path).write_text(json.dumps(self.result, indent=1))
        done = len(self.result["checks"]) + len(self.result["tests"])
        not_done = len(self.result["not_done"])
        verdict = "passed" if self.result["passed"] else "FAILED"
        self.say(f"{verdict}: {done - len(failed)} of {done} checks, {not_done} not done")
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
