"""Do SGLang's own tests of the operator pass with the kernel in place, and was it called?"""

import functools
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree

HERE = pathlib.Path(__file__).parent
# For a test file, with the kernel on or off: it compiles what it calls.
SECONDS = 600


def tests_of(told, name, described, tests, work, site):
    """SGLang's tests of the operator, with the kernel serving all shapes that the constraints admit."""
    files = [tests / file for file in described["tests"] if (tests / file).is_file()]
    if not files:
        return told.not_done(
            f"{name}: SGLang's own tests", f"none of {', '.join(described['tests'])} is in {tests}"
        )
    for file in files:
        on = pytest(file, work, site, "on")
        off = pytest(file, work, site, "off") if on["failed"] else None
        hits = sum(told.get("hit", 0) for told in on["counters"].get(name, {}).values())
        blamed = sorted(set(on["failed"]) - set(off["failed"] if off else []))
        passed = on["run"] > len(on["failed"]) and hits > 0 and not blamed
        summary = f"{on['run']} run, {len(on['failed'])} failed, {on['skipped']} skipped, {hits} calls served by the kernel"
        if off and not blamed:
            summary += f"; the same {len(on['failed'])} fail without it"
        if not passed and not blamed:
            summary += f"; {on['said']}"
        told.result["tests"].append(
            {
                "operator": name,
                "file": str(file.relative_to(tests)),
                "passed": passed,
                "summary": summary,
                "hits": hits,
                "blamed": blamed,
                "on": on,
                "off": off,
            }
        )
        told.say(f"{'ok    ' if passed else 'FAILED'} {name}: {file.name}: {summary}")
        told.keep()


@functools.cache
def pytest(file, work, site, switch):
    """Runs a test file in a process of its own, once for all operators that it tests."""
    kept = pathlib.Path(tempfile.mkdtemp(prefix=f"{switch}-{file.stem}-", dir=work))
    report = kept / "report.xml"
    environment = dict(
        os.environ,
        WARPSMITH_SGLANG=switch,
        WARPSMITH_SGLANG_SHAPES="constraints",
        WARPSMITH_SGLANG_COUNTERS=str(kept),
    )
    paths = [str(site), str(HERE), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment.update(PYTHONPATH=os.pathsep.join(paths), PYTHONDONTWRITEBYTECODE="1")
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "warpsmith_pytest",
        "-p",
        "no:cacheprovider",
        "--import-mode=importlib",
        f"--junitxml={report}",
        str(file),
    ]
    begin = time.monotonic()
    try:
        done = subprocess.run(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            env=environment,
            timeout=SECONDS,
            cwd=file.parent,
        )
        output = done.stdout
        said = f"pytest ended with {done.returncode}: {(output.strip().splitlines() or ['it said nothing'])[-1]}"
    except subprocess.TimeoutExpired as error:
        output = (error.stdout or b"").decode(errors="replace")
        said = f"it took more than {SECONDS} s"
    found = {"run": 0, "failed": [], "skipped": 0, "said": said, "counters": {}}
    found.update(seconds=round(time.monotonic() - begin, 3), output=output[-4000:])
    for case in cases(report):
        kinds = {child.tag for child in case}
        found["skipped"] += "skipped" in kinds
        found["run"] += "skipped" not in kinds
        if kinds & {"failure", "error"}:
            found["failed"].append(f"{case.get('classname')}::{case.get('name')}")
    for counters in kept.glob("*.json"):
        for key, types in json.loads(counters.read_text()).items():
            for dtype, told in types.items():
                into = found["counters"].setdefault(key, {}).setdefault(dtype, {})
                for what, times in told.items():
                    into[what] = into.get(what, 0) + times
    return found


def cases(report):
    """The test cases of a report; none where pytest did not get to write one."""
    try:
        return list(xml.etree.ElementTree.parse(report).iter("testcase"))
    except (OSError, xml.etree.ElementTree.ParseError):
        return []
