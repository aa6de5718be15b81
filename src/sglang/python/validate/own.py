"""Do SGLang's own tests of the operator pass with the kernel in place, and was it called?"""

import json
import os
import pathlib
import subprocess
import sys
import xml.etree.ElementTree

HERE = pathlib.Path(__file__).parent


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
        hits = sum(
            types.get(dtype, {}).get("hit", 0)
            for key, types in on["counters"].items()
            for dtype in types
            if key == name
        )
        blamed = sorted(set(on["failed"]) - set(off["failed"] if off else []))
        passed = on["run"] > len(on["failed"]) and hits > 0 and not blamed
        summary = f"{on['run']} run, {len(on['failed'])} failed, {on['skipped']} skipped, {hits} calls served by the kernel"
        if off and not blamed:
            summary += f"; the same {len(on['failed'])} fail without it"
        if not on["run"]:
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


def pytest(file, work, site, switch):
    """Runs a test file in a process of its own."""
    kept, report = work / f"counters-{switch}-{file.stem}", work / f"{switch}-{file.stem}.xml"
    environment = dict(
        os.environ,
        WARPSMITH_SGLANG=switch,
        WARPSMITH_SGLANG_SHAPES="constraints",
        WARPSMITH_SGLANG_COUNTERS=str(kept),
    )
    environment["PYTHONPATH"] = os.pathsep.join([str(site), str(HERE), os.environ.get("PYTHONPATH", "")])
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
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, env=environment, timeout=300, cwd=file.parent
        )
        said = (done.stdout.strip().splitlines() or done.stderr.strip().splitlines() or [""])[-1]
    except subprocess.TimeoutExpired:
        said = "it took more than 300 s"
    found = {"run": 0, "failed": [], "skipped": 0, "said": said, "counters": {}}
    if report.is_file():
        for case in xml.etree.ElementTree.parse(report).iter("testcase"):
            kinds = {child.tag for child in case}
            found["skipped"] += "skipped" in kinds
            found["run"] += "skipped" not in kinds
            if kinds & {"failure", "error"}:
                found["failed"].append(case.get("name"))
    for counters in kept.glob("*.json"):
        for key, types in json.loads(counters.read_text()).items():
            for dtype, told in types.items():
                into = found["counters"].setdefault(key, {}).setdefault(dtype, {})
                for what, times in told.items():
                    into[what] = into.get(what, 0) + times
    return found
