"""How does a kernel get into the place of the framework's, where the framework compiles its file at run time?"""

import hashlib
import importlib
import importlib.util
import logging
import pathlib
import sys

from . import compiled, guard

logger = logging.getLogger(__name__)
# Kernels that were to be put in place and were not, by operator and type.
absent = set()
# Where SGLang's own headers lie in its folder of includes: one that is not there has been renamed or taken away.
OWN = "sgl_kernel/"


def wanted(kernel, files, wrappers):
    """Whether a call of load_jit compiles what this kernel replaces: its file, and the very instance that was certified."""
    return kernel["file"] in files and any(same(kernel["exported"], code) for _, code in wrappers)


def same(one, other):
    plain = lambda code: "".join(code.split()).replace("sglang::", "")
    return plain(one) == plain(other)


def loader():
    """The framework's load_jit, where this version has it; None where it has none."""
    for path in ("sglang.kernels.jit.utils", "sglang.jit_kernel.utils"):
        try:
            return importlib.import_module(path).load_jit
        except (ImportError, AttributeError):
            continue
    return None


def differs(kernel, load_jit):
    """What the installed framework has otherwise than when the kernel was taken out, and the file: nothing if nothing."""
    root = framework(load_jit)
    if root is None:
        return "file differs", kernel["file"]
    # A chain's own text is ours; its parts are among the headers.
    if "chain" not in kernel and sha256(root / "csrc" / kernel["file"]) != kernel["sha256"]:
        return "file differs", kernel["file"]
    folders = [root / "include", *beside_the_original(kernel, root), *tvm_ffi()]
    for header, recorded in kernel.get("headers", {}).items():
        found = next((folder / header for folder in folders if (folder / header).is_file()), None)
        if found is None and not header.startswith(OWN) and header not in kernel.get("parts", []):
            logger.info("warpsmith: %s is in no folder that is known here, so it is not compared", header)
        elif found is None or sha256(found) != recorded:
            return "header differs", header
    return None


def framework(load_jit):
    """Where the framework's kernels lie; None where it does not say."""
    root = getattr(sys.modules.get(load_jit.__module__), "KERNEL_PATH", None)
    return root and pathlib.Path(root)


def beside_the_original(kernel, root):
    """The folders in which a text finds the headers that its original finds by where it lies."""
    return [root / "csrc", (root / "csrc" / kernel["file"]).parent]


def include_paths(kernel, load_jit, keywords):
    """What load_jit is asked for beyond the framework's own: the kernel's text lies elsewhere than its original."""
    root = framework(load_jit)
    ours = [str(folder) for folder in beside_the_original(kernel, root)] if root else []
    return [*(keywords.get("extra_include_paths") or []), *ours]


def tvm_ffi():
    """Where tvm-ffi's headers lie, if it is installed."""
    package = importlib.util.find_spec("tvm_ffi")
    return [pathlib.Path(folder) / "include" for folder in package.submodule_search_locations or []] if package else []


def sha256(file):
    try:
        return hashlib.sha256(file.read_bytes()).hexdigest()
    except OSError:
        return None


def around(original, *args, **keywords):
    """In load_jit's place: the original's module, and beside it ours, for the calls that it was certified for."""
    module = original(*args, **keywords)
    files, wrappers = keywords.get("cuda_files") or [], keywords.get("cuda_wrappers") or []
    kernels = [
        kernel
        for kernel in guard.SWAP["kernels"]
        if kernel["level"] == "J" and wanted(kernel, files, wrappers)
    ]
    # Two operators may have their kernels in one file, and both kernels be one text each.
    for kernel in kernels:
        if not guard.switched_on(kernel["operator"]):
            guard.count(kernel, "switched off")
            continue
        module = beside(module, kernel, original, args, keywords)
    return module


def beside(module, kernel, load_jit, args, keywords):
    name = f"{kernel['operator']} ({kernel['dtype']})"
    other = differs(kernel, load_jit)
    if other:
        why, file = other
        logger.warning(
            "warpsmith: %s: the installed %s is not the one that this kernel was taken out of sglang %s with; the original "
            "stays. Extract it from this version, optimize it and export it anew.",
            name,
            file,
            guard.SWAP["version"],
        )
        guard.count(kernel, why)
        absent.add((kernel["operator"], kernel["dtype"]))
        return module
    source = str(guard.HERE / kernel["source"])
    changed = dict(
        keywords,
        cuda_files=[source if file == kernel["file"] else file for file in keywords["cuda_files"]],
        extra_include_paths=include_paths(kernel, load_jit, keywords),
    )
    try:
        ours = load_jit(f"warpsmith_{kernel['candidate'][:12]}", *args, **changed)
    except Exception:
        logger.exception("warpsmith: %s: the kernel cannot be compiled here; the original stays", name)
        guard.count(kernel, "not built")
        absent.add((kernel["operator"], kernel["dtype"]))
        return module
    export = next(export for export, code in keywords["cuda_wrappers"] if same(kernel["exported"], code))
    logger.info("warpsmith: %s: %s stands beside the original", name, kernel["candidate"][:12])
    return Beside(module, export, guarded(kernel, getattr(ours, export), getattr(module, export)))


class Beside:
    """The original's module, in which one function chooses."""

    def __init__(self, module, export, function):
        self.__dict__["_original"] = module
        self.__dict__[export] = function

    def __getattr__(self, name):
        return getattr(self._original, name)


def guarded(kernel, ours, original):
    """The function that chooses, call by call."""
    watch, passed, count = guard.Guard(kernel), kernel["passed"], guard.count
    fixed = [(place, said[1:-1]) for place, said in enumerate(passed) if said.startswith("'")]
    faster = compiled.chooser(kernel, passed, fixed, watch, ours, original)
    if faster:
        return faster

    def call(*args):
        if len(args) != len(passed):
            why = "arguments"
        elif any(args[place] != value for place, value in fixed):
            # Another operator of the same file.
            return original(*args)
        else:
            why = watch.refuses(dict(zip(passed, args)))
        count(kernel, why or guard.HIT)
        return (original if why else ours)(*args)

    return call
