"""The guard in C++, built once for this Python and this torch; without it, the one in Python does the same more slowly."""

import functools
import hashlib
import importlib.machinery
import importlib.util
import logging
import os
import pathlib
import shutil
import subprocess
import sys
import sysconfig

from . import guard, library

logger = logging.getLogger(__name__)
# Kernels, and the guards in C++ that count for them.
counting = []


@functools.cache
def module():
    """The extension, or None where it is not wanted or cannot be built; why is logged, once."""
    if os.environ.get("WARPSMITH_SGLANG_GUARD", "compiled") == "python":
        return None
    try:
        return loaded(built())
    except Exception as wrong:
        logger.warning(
            "warpsmith: the guard in C++ cannot be built here, and the one in Python, which takes 2 to 10 us a call, stands "
            "in for it: %s",
            wrong,
        )
        return None


def loaded(file):
    loader = importlib.machinery.ExtensionFileLoader("warpsmith_guard", str(file))
    spec = importlib.util.spec_from_loader("warpsmith_guard", loader)
    extension = importlib.util.module_from_spec(spec)
    loader.exec_module(extension)
    return extension


def built():
    """Its file, from a folder that its source, Python and torch name."""
    import torch

    source = guard.HERE / "guard.cpp"
    seen = hashlib.sha256(f"{torch.__version__} {sys.version} {torch.__file__}".encode() + source.read_bytes())
    out = library.cache() / seen.hexdigest()[:24] / "warpsmith_guard.so"
    if not out.is_file():
        out.parent.mkdir(parents=True, exist_ok=True)
        part = out.with_suffix(f".{os.getpid()}.part")
        made = subprocess.run(command(source, part), capture_output=True, text=True)
        if made.returncode:
            # Of all that a compiler says the first error is the one that counts.
            errors = [line for line in made.stderr.splitlines() if "error" in line]
            raise RuntimeError((errors or made.stderr.splitlines() or [f"{command(source, part)[0]} failed"])[0])
        part.replace(out)
    return out


def command(source, out):
    """The compiler's command line."""
    from torch.utils import cpp_extension
    import torch

    compiler = os.environ.get("CXX") or shutil.which("c++") or shutil.which("g++")
    if not compiler:
        raise RuntimeError("there is no C++ compiler: set CXX")
    standard = 17 if torch.__version__.startswith("1.") else 20
    libraries = pathlib.Path(torch.__file__).parent / "lib"
    return [
        compiler,
        f"-std=c++{standard}",
        "-O2",
        "-w",
        "-fPIC",
        "-shared",
        "-fvisibility=hidden",
        f"-D_GLIBCXX_USE_CXX11_ABI={int(torch._C._GLIBCXX_USE_CXX11_ABI)}",
        *[f"-I{path}" for path in [sysconfig.get_paths()["include"], *cpp_extension.include_paths()]],
        str(source),
        "-o",
        str(out),
        f"-L{libraries}",
        "-ltorch_python",
        "-ltorch_cpu",
        "-lc10",
    ]


def watching(kernel, parameters, watch):
    """A guard in C++ that asks this one in Python about each new signature; None where there is no extension."""
    extension = module()
    if extension is None:
        return None
    names = tuple(kernel["arguments"])
    judge = lambda *arrays: watch.judge(dict(zip(names, arrays)))
    # Texts among the parameters are no arguments, and their places stay.
    one = extension.Guard(judge, tuple(parameters), names, kernel["alignment"])
    # Another copy of this package has guards of its own.
    one.set_ours(guard.Switch.ours)
    counting.append((kernel, one))
    return one


def chooser(kernel, passed, fixed, watch, ours, original):
    """The function that chooses, or None."""
    one = watching(kernel, passed, watch)
    return one and module().Chooser(one, ours, original, tuple(fixed))


def hook(watched, absent):
    """The function that stands around another, or None. Of each: kernel, key, hook, guard, what finds the function."""
    entries = []
    for kernel, key, said, watch, find in watched:
        one = watching(kernel, said["parameters"], watch)
        if one is None:
            return None
        places = tuple(said["parameters"].index(name) for name in said["passed"])
        entries.append((one, places, find, key))
    return module().Hook(tuple(entries), absent)


def use_ours(ours):
    """Ours or the original, for a comparison in one process."""
    for _, one in counting:
        one.set_ours(ours)


def added_to(told):
    """These counters, with those of the guards in C++."""
    for kernel, one in counting:
        here = told.setdefault(kernel["operator"], {}).setdefault(kernel["dtype"], {})
        for what, times in one.counts().items():
            here[what] = here.get(what, 0) + times
    return told
