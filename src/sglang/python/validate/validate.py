"""Installs an export of warpsmith's beside SGLang, and checks and times it there against the original.

warpsmith sglang validate writes this folder and starts it with SGLang's Python.
"""

import argparse
import hashlib
import importlib
import importlib.metadata
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
from calls import Operator  # noqa: E402
from told import Told, last_line  # noqa: E402


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
    why = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
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
            except (ImportError, AttributeError):
                continue
    elif tests:
        roots = [tests / "python/sglang/kernels/aot/csrc", tests / "sgl-kernel/csrc"]
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
        text = original_of(kernel, tests)
        if text is None:
            told.not_done(
                f"{kernel['operator']} {kernel['dtype']}: timing the unchanged extract",
                "its text is not here; --tests names a tree that has it",
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
    module.register()
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
        "versions": versions,
    }


def main():
    wanted = arguments()
    told = Told()
    for name in ("WARPSMITH_SGLANG", "WARPSMITH_SGLANG_SHAPES"):
        os.environ.pop(name, None)
    site = wanted.work / "site"
    site.mkdir(parents=True, exist_ok=True)
    try:
        import torch

        if not torch.cuda.is_available():
            told.not_done("everything", "this Python's torch sees no GPU")
            return told.close(wanted.result)
        told.result["stand_ins"] = layers.stand_ins()
        import sglang.srt.plugins as plugins
    except ImportError as error:
        told.not_done("everything", f"{last_line(error)}; name SGLang's Python with --python")
        return told.close(wanted.result)
    install(told, wanted.plugin, site)
    sys.path.insert(0, str(site))
    importlib.invalidate_caches()
    name = next(path.parent.name for path in site.glob("*/swap.json"))
    swap = json.loads((site / name / "swap.json").read_text())
    told.result.update(
        machine=machine(),
        export={
            kernel["operator"] + " " + kernel["dtype"]: kernel["candidate"] for kernel in swap["kernels"]
        },
    )
    unchanged = control(told, site, name, wanted.tests)
    plugins.load_plugins()
    if name not in sys.modules:
        told.checked(
            name, "", "SGLang finds the plug-in by its entry point", False, "load_plugins did not load it"
        )
        return told.close(wanted.result)
    package = sys.modules[name]
    told.checked(
        name,
        "",
        "SGLang finds the plug-in by its entry point",
        True,
        f"sglang {told.result['machine']['versions']['sglang']}",
    )
    if unchanged:
        unchanged.use(False)
    speed = None if wanted.no_timing else clock.bandwidth()
    told.result["bandwidth"] = speed
    if speed:
        told.say(f"copying 1 GiB moves {speed / 1e12:.3f} TB/s on {told.result['machine']['gpu']}")
    asked = wanted.op or list(swap["operators"])
    for operator in asked:
        if operator not in swap["operators"]:
            told.checked(
                operator, "", "it is in the export", False, f"the export has {', '.join(swap['operators'])}"
            )
    kernels = [kernel for kernel in swap["kernels"] if kernel["operator"] in asked]
    for kernel in kernels:
        operator = Operator(
            kernel["operator"], kernel["dtype"], swap["operators"][kernel["operator"]], kernel
        )
        try:
            checks.Checks(told, operator, package).all()
            if speed:
                times.times(told, operator, package, unchanged, wanted.repetitions, speed)
        except Exception as error:
            told.checked(operator.name, operator.dtype, "the operator can be called", False, last_line(error))
        if operator.name in layers.LAYERS:
            layers.run(told, operator, package, 0 if wanted.no_timing else wanted.repetitions // 2)
    if wanted.no_tests:
        told.not_done("SGLang's own tests", "--no-tests")
    elif wanted.tests:
        for operator in dict.fromkeys(kernel["operator"] for kernel in kernels):
            own.tests_of(
                told, operator, swap["operators"][operator], wanted.tests.resolve(), wanted.work, site
            )
    else:
        told.not_done("SGLang's own tests", "no tree was named: --tests TREE")
    told.result["counters"] = package.counters()
    return told.close(wanted.result)


if __name__ == "__main__":
    sys.exit(main())
