"""How does a kernel get into the place of an operator that was compiled ahead of time?

A small library is built from the kernel and torch's headers; when it is loaded, it takes the operator's entry in torch's
dispatcher and keeps the original for the calls that the kernel was not certified for.
"""

import hashlib
import importlib.metadata
import logging
import os
import pathlib
import re
import shutil
import subprocess

from . import guard

logger = logging.getLogger(__name__)
loaded = []


def load(kernel):
    """Builds it if it is not built yet, and puts it in place."""
    name = f"{kernel['operator']} ({kernel['dtype']})"
    here = other_version()
    if here:
        logger.warning("warpsmith: %s: taken out of %s, and here is %s; the original stays", name, guard.SWAP["version"], here)
        guard.count(kernel, "file differs")
        return
    try:
        import sgl_kernel  # noqa: F401, the original must be registered first
        import torch

        torch.ops.load_library(str(built(kernel)))
    except Exception:
        logger.exception("warpsmith: %s: the library cannot be built or loaded; the original stays", name)
        guard.count(kernel, "not built")
        return
    operators = getattr(torch.ops, kernel["namespace"])
    operators.set_constrained(guard.as_constrained())
    loaded.append((kernel, operators))
    logger.info("warpsmith: %s: %s stands in front of the original", name, kernel["candidate"][:12])


def other_version():
    """What is installed, where that is another sglang-kernel than the one that the kernel was taken out of."""
    wanted = re.search(r"sglang-kernel (\S+)", guard.SWAP["version"])
    if not wanted:
        return None
    try:
        here = importlib.metadata.version("sglang-kernel")
    except importlib.metadata.PackageNotFoundError:
        here = "of no known version"
    return None if here == wanted[1] else f"sglang-kernel {here}"


def cache():
    """Where what is built lies."""
    return pathlib.Path(os.environ.get("WARPSMITH_SGLANG_CACHE", "~/.cache/warpsmith-sglang")).expanduser()


def built(kernel):
    """The library's file, from a folder that its sources, torch and the GPU's kind name."""
    import torch

    sources = guard.HERE / kernel["source"]
    seen = hashlib.sha256(f"{torch.__version__} {kernel['capability']} {kernel['flags']}".encode())
    for file in sorted(path for path in sources.parent.rglob("*") if path.is_file()):
        seen.update(file.read_bytes())
    out = cache() / seen.hexdigest()[:24] / f"{kernel['namespace']}.so"
    if not out.is_file():
        out.parent.mkdir(parents=True, exist_ok=True)
        part = out.with_suffix(f".{os.getpid()}.part")
        made = subprocess.run(command(kernel, sources.parent, part), capture_output=True, text=True)
        if made.returncode:
            raise RuntimeError(f"nvcc ended with {made.returncode}:\n{made.stderr[-4000:]}")
        part.replace(out)
    return out


def command(kernel, folder, out):
    """nvcc's command line."""
    from torch.utils import cpp_extension
    import torch

    home = os.environ.get("CUDA_HOME") or cpp_extension.CUDA_HOME
    nvcc = os.environ.get("NVCC") or (f"{home}/bin/nvcc" if home else shutil.which("nvcc"))
    if not nvcc:
        raise RuntimeError("there is no nvcc: set NVCC or CUDA_HOME")
    major, minor = kernel["capability"]
    arch = f"{major}{minor}{'a' if major >= 9 else ''}"
    paths = [folder / "include", *cpp_extension.include_paths("cuda")]
    old = int(torch._C._GLIBCXX_USE_CXX11_ABI)
    return [
        nvcc,
        "-shared",
        "-o",
        str(out),
        str(folder / "library.cu"),
        *kernel["flags"],
        f"-gencode=arch=compute_{arch},code=sm_{arch}",
        "-Xcompiler",
        "-fPIC,-fvisibility=hidden",
        f"-D_GLIBCXX_USE_CXX11_ABI={old}",
        "-Xlinker",
        "-Bsymbolic",
        *[f"-I{path}" for path in paths],
        "-L" + str(pathlib.Path(torch.__file__).parent / "lib"),
        "-lc10",
        "-lc10_cuda",
        "-ltorch_cpu",
        "-ltorch_cuda",
        "-ltorch",
    ]


def use_ours(ours):
    """Ours or the original, for a comparison in one process."""
    for _, operators in loaded:
        operators.set_ours(ours)


def added_to(told):
    """These counters, with those of the libraries."""
    for kernel, operators in loaded:
        hits, *others = operators.counters()
        reasons = {why: times for why, times in zip(kernel["reasons"], others) if times}
        told.setdefault(kernel["operator"], {})[kernel["dtype"]] = {guard.HIT: hits, **reasons}
    return told
