"""Installs an export of warpsmith's beside SGLang, and checks and times it there against the original.

warpsmith sglang validate writes this folder and starts it with SGLang's Python.
"""

import argparse
import hashlib
import importlib
import importlib.metadata
import importlib.util
import json
import os
import pathlib
import shutil
import subprocess
import sys

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE))

import checks  # noqa: E402
import clock  # noqa: E402
import layers  # noqa: E402
import own  # noqa: E402
import times  # noqa: E402
from calls import Operator, settled  # noqa: E402
from told import Told  # noqa: E402


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--plugin", type=pathlib.Path, required=True)
    parser.add_argument("--work", type=pathlib.Path, required=True)
    parser.add_argument("--result", required=True)
    parser.add_argument("--op", action="append", default=[])
    parser.add_argument("--tests", type=pathlib.Path)
    parser.add_argument("--repetitions", type=int, default=40)
    parser.add_argument("--no-tests", action="store_true")
    parser.add_argument("--no-timing", action="store_true")
    return parser.parse_args()


def install(told, plugin, site):
    """pip, without a network and without building in a place of its own."""
    source = site.parent / "plugin"
    shutil.copytree(plugin, source)
    pip = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "-q",
        "--no-deps",
        "--no-index",
        "--no-build-isolation",
        "--no-compile",
        "--disable-pip-version-check",
        "--target",
        str(site),
        str(source),
    ]
    done = subprocess.run(pip, capture_output=True, text=True)
    if done.returncode == 0:
        return
    lines = done.stderr.strip().splitlines() or ["it said nothing"]
    # Our own setup.py says what is lacking; pip says a page behind it.
    why = next((line.strip() for line in lines if line.strip().startswith("warpsmith: ")), lines[-1])
    told.not_done("installing with pip", f"{why}; the package was copied and its entry point written by hand")
    package = next(path.parent for path in source.glob("*/swap.json"))
    shutil.copytree(package, site / package.name)
    info = site / f"{package.name}-0.1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package.name}\nVersion: 0.1.0\n")
    (info / "entry_points.txt").write_text(
        f"[sglang.srt.plugins]\n{package.name} = {package.name}:register\n"
    )


def original_of(kernel, tests):
    """The text that the kernel replaces, where it lies here: beside sglang, or in its tree."""
    roots = []
    if kernel["level"] == "J":
        for name in ("sglang.kernels.jit", "sglang.jit_kernel"):
            try:
                roots.append(pathlib.Path(importlib.util.find_spec(name).origin).parent / "csrc")
            except (ImportError, AttributeError, TypeError):
                continue
    if tests:
        roots += [tests / "python/sglang/kernels/aot/csrc", tests / "sgl-kernel/csrc"]
    for root in roots:
        file = root / kernel["file"]
        if file.is_file() and hashlib.sha256(file.read_bytes()).hexdigest() == kernel["sha256"]:
            return file.read_text()
    return None


def control(told, site, package, tests):
    """A second package with the original's text in the kernels' place: the extract, by the same way."""
    swap = json.loads((site / package / "swap.json").read_text())
    name = f"unchanged_{package}"
    for kernel in list(swap["kernels"]):
        if "chain" in kernel:
            # The framework has no text of it: its original is the calls, one after another.
            swap["kernels"].remove(kernel)
            continue
        text = original_of(kernel, tests)
        if text is None:
            told.not_done(
                f"{kernel['operator']} {kernel['dtype']}: timing the unchanged extract",
                f"the text that the kernel replaces is not here: {kernel['file']}; --tests names a tree that has it",
            )
            swap["kernels"].remove(kernel)
            continue
        kernel["candidate"] = "unchanged" + kernel["sha256"]
        if not (site / name).exists():
            shutil.copytree(site / package, site / name)
        (site / name / kernel["source"]).write_text(text)
        if kernel["level"] == "A":
            library = (site / name / kernel["source"]).parent / "library.cu"
            library.write_text(library.read_text().replace(kernel["namespace"], f"un{kernel['namespace']}"))
            kernel["namespace"] = f"un{kernel['namespace']}"
    if not swap["kernels"]:
        return None
    (site / name / "swap.json").write_text(json.dumps(swap))
    module = importlib.import_module(name)
    module.use(False)
    module.register()
    module.use(False)
    return module


def machine():
    import torch

    versions = {}
    for name in ("sglang", "sglang-kernel", "flashinfer-python", "apache-tvm-ffi", "torch", "triton"):
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            versions[name] = None
    return {
        "gpu": torch.cuda.get_device_name(0),
        "capability": torch.cuda.get_device_capability(0),
        "cuda": torch.version.cuda,
        "versions": versions,
    }


def load(told, wanted, site):
    """The plug-in, found as SGLang finds it, what it says of itself, and the control: nothing where it is not found."""
    import sglang.srt.plugins as plugins

    with told.step("install", "the plug-in is installed", of=("plug-in", "")):
        install(told, wanted.plugin, site)
    sys.path.insert(0, str(site))
    importlib.invalidate_caches()
    name = next((path.parent.name for path in site.glob("*/swap.json")), None)
    if not name:
        return None, None, None
    swap = json.loads((site / name / "swap.json").read_text())
    # Other plug-ins that are installed here are none of this.
    os.environ["SGLANG_PLUGINS"] = name
    told.result.update(
        machine=machine(),
        export={f"{kernel['operator']} {kernel['dtype']}": kernel["candidate"] for kernel in swap["kernels"]},
    )
    unchanged = None
    with told.step("control", "timing the unchanged extract"):
        unchanged = control(told, site, name, wanted.tests)
    plugins.load_plugins()
    how = f"sglang {told.result['machine']['versions']['sglang']}"
    found = name in sys.modules
    how = how if found else "load_plugins did not load it"
    told.checked(name, "", "SGLang finds the plug-in by its entry point", found, how)
    return sys.modules.get(name), swap, unchanged


def each(told, wanted, package, operator, unchanged, speed):
    """Checks, times and the layer of one operator and type."""
    named = operator.name, operator.dtype
    with told.step("checks", "the operator can be called", of=named):
        checks.Checks(told, operator, package).all()
    if speed:
        with told.step("times", f"timing {' '.join(named)}"):
            times.times(told, operator, package, unchanged, wanted.repetitions, speed)
    if operator.name in layers.LAYERS:
        with told.step("layers", f"the layer of {' '.join(named)}"):
            layers.run(told, operator, package, wanted.repetitions // 2 if speed else 0)
    # A kernel that reads or writes where it must not may have stopped the GPU after the last check.
    with told.step("checks", "the GPU still answers", of=named):
        settled(operator.device)


def measured(told, wanted):
    """The bandwidth of a copy; nothing where there is no timing."""
    speed = None
    if not wanted.no_timing:
        with told.step("times", "timing"):
            speed = clock.bandwidth()
            told.say(f"copying 1 GiB moves {speed / 1e12:.3f} TB/s on {told.result['machine']['gpu']}")
    told.result["bandwidth"] = speed
    return speed


def tests(told, wanted, operators, swap, site):
    """SGLang's own tests of these operators."""
    if wanted.no_tests or not wanted.tests:
        why = "--no-tests" if wanted.no_tests else "no tree was named: --tests TREE"
        return told.not_done("SGLang's own tests", why)
    for name in operators:
        with told.step("tests", f"{name}: SGLang's own tests"):
            own.tests_of(told, name, swap["operators"][name], wanted.tests.resolve(), wanted.work, site)


def validate(told, wanted):
    import torch

    if not torch.cuda.is_available():
        return told.not_done("everything", "this Python's torch sees no GPU")
    told.result["stand_ins"] = layers.stand_ins()
    site = wanted.work / "site"
    site.mkdir(parents=True, exist_ok=True)
    package, swap, unchanged = load(told, wanted, site)
    if not package:
        return None
    speed = measured(told, wanted)
    asked = wanted.op or list(swap["operators"])
    for name in asked:
        if name not in swap["operators"]:
            how = f"the export has {', '.join(swap['operators'])}"
            told.checked(name, "", "it is in the export", False, how)
    kernels = [kernel for kernel in swap["kernels"] if kernel["operator"] in asked]
    for kernel in kernels:
        name = kernel["operator"]
        if "chain" in kernel and not hasattr(package, "chain"):
            why = "it is a chain of operators, which its export cannot be asked for; export it anew"
            told.not_done(f"{name} {kernel['dtype']}", why)
            continue
        operator = Operator(name, kernel["dtype"], swap["operators"][name], kernel)
        each(told, wanted, package, operator, unchanged, speed)
    # SGLang's tests call a chain's functions one by one and no layer, so they never reach its kernel.
    alone = dict.fromkeys(kernel["operator"] for kernel in kernels if "chain" not in kernel)
    tests(told, wanted, alone, swap, site)
    told.result["counters"] = package.counters()
    return None


def main():
    wanted = arguments()
    told = Told(wanted.result)
    try:
        told.keep()
    except OSError as error:
        print(f"{wanted.result}: the result cannot be written there: {error}", file=sys.stderr)
        return 2
    for name in ("WARPSMITH_SGLANG", "WARPSMITH_SGLANG_SHAPES", "WARPSMITH_SGLANG_COUNTERS"):
        os.environ.pop(name, None)
    with told.step("all", "everything"):
        try:
            validate(told, wanted)
        except ImportError as error:
            raise ImportError(f"{error}; name SGLang's Python with --python") from error
    return told.close()


if __name__ == "__main__":
    sys.exit(main())
