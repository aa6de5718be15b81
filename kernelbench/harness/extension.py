"""The quick build of a candidate's C++ and CUDA sources, with headers of our own.

torch's `load` and `load_inline` write sources down and hand them to one function that compiles them with torch's headers.
Here another function stands in its place: it compiles them with the headers in `slim/`, and where anything fails there, in
the compiler, the linker or the loader, torch's own builds them as if nothing had been tried.
"""

import ctypes
import functools
import hashlib
import inspect
import os
import re
import shlex
import shutil
import sysconfig
import threading
import time

import torch

import facts
import nvcc as compiler

# What candidates for a GPU import as a rule.
USUAL = ["torch.utils.cpp_extension", "triton.language"]
HEADERS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "slim")
RUNTIME_FLAGS = ["-std=c++17", "-O2", "-fPIC", "-w"]
# Longer than any build here took; a compiler that takes longer is left to torch.
PATIENCE = 120
# Standard headers that torch's own bring in and the slim ones do not, by the names in `std` that show the need.
NAMED_IN_STD = {
    "array": "array",
    "atomic": r"atomic\w*",
    "bitset": "bitset",
    "chrono": "chrono",
    "complex": "complex",
    "deque": "deque",
    "functional": "function|bind|hash|less|greater|plus|multiplies|ref|cref|invoke",
    "iomanip": "set(w|precision|fill)",
    "iostream": "cout|cerr|clog|endl|cin",
    "map": "map|multimap",
    "memory": r"(shared|unique|weak)_ptr|make_(shared|unique)|addressof|align",
    "mutex": "mutex|lock_guard|unique_lock|scoped_lock|call_once|once_flag",
    "numeric": "accumulate|iota|inner_product|partial_sum|gcd|lcm",
    "queue": "queue|priority_queue",
    "set": "set|multiset",
    "sstream": r"[io]?stringstream",
    "thread": "thread|this_thread",
    "unordered_map": "unordered_map",
    "unordered_set": "unordered_set",
    "variant": "variant|visit|get_if|holds_alternative",
}


# The same of CUDA's headers, by any name.
CUDA = {
    "cublas_v2.h": r"cublas\w+|CUBLAS_\w+|getCurrentCUDABlasHandle",
    "cuda_bf16.h": r"__nv_bfloat16\w*|nv_bfloat16\w*|__float2bfloat16\w*",
    "cuda_fp16.h": r"__half\w*|half2?|__float2half\w*",
}


class Fails(Exception):
    """The slim build came to nothing: why."""


def watch(message, device):
    """A list of how a module's extensions will have been built, once it is loaded; without one in sight, nothing is done."""
    built = []
    if "cpp_extension" in read(message["path"]):
        if device.type == "cuda" and "TORCH_CUDA_ARCH_LIST" not in os.environ:
            os.environ["TORCH_CUDA_ARCH_LIST"] = facts.architecture(*torch.cuda.get_device_capability(device))
        if message.get("headers") == "slim":
            install(built)
    return built


def install(built):
    """Has torch's extensions built here, and noted."""
    from torch.utils import cpp_extension

    stock = inspect.unwrap(cpp_extension._jit_compile)
    signature = inspect.signature(stock)

    @functools.wraps(stock)
    def compile_just_in_time(*args, **kwargs):
        job = signature.bind(*args, **kwargs)
        job.apply_defaults()
        start = time.perf_counter()
        try:
            module = build(cpp_extension, job.arguments)
            built.append({"name": job.arguments["name"], "headers": "slim", "seconds": time.perf_counter() - start})
            return module
        except Exception as error:
            why = str(error) if isinstance(error, Fails) else f"{type(error).__name__}: {error}"
            why = why.replace(job.arguments["build_directory"] + os.sep, "")
        module = stock(*args, **kwargs)
        seconds = time.perf_counter() - start
        built.append({"name": job.arguments["name"], "headers": "stock", "seconds": seconds, "why": why[-2000:]})
        return module

    cpp_extension._jit_compile = compile_just_in_time


def build(tools, job):
    """The module that torch's function would make of the same arguments."""
    if not job["is_python_module"] or job["is_standalone"] or job.get("with_sycl") or torch.version.hip:
        raise Fails("only modules of C++ and CUDA are built with the slim headers")
    sources = [os.path.abspath(source) for source in job["sources"]]
    with_cuda = job["with_cuda"]
    if with_cuda is None:
        with_cuda = any(tools._is_cuda_file(source) for source in sources)
    objects = [f"{at}.o" for at in range(len(sources))]
    commands = [command(tools, job, with_cuda, *pair) for pair in zip(sources, objects)]
    if any("_GLIBCXX" in part for command in commands for part in command):
        raise Fails("the flags change the standard library")
    objects.append("runtime.o")
    commands.append([*host_compiler(), *RUNTIME_FLAGS, "-c", os.path.join(HEADERS, "runtime.cpp"), "-o", objects[-1]])
    library = f"{job['name']}.so"
    commands.append(linking(tools, job, with_cuda, objects, library))
    folder = os.path.join(job["build_directory"], "slim-" + fingerprint(sources, commands))
    if not os.path.exists(os.path.join(folder, library)):
        making = folder + f".{os.getpid()}"
        os.makedirs(making, exist_ok=True)
        run(commands[:-1], making)
        run(commands[-1:], making)
        try:
            os.rename(making, folder)
        except OSError:  # another process of this folder was faster
            shutil.rmtree(making, ignore_errors=True)
    return load(job["name"], os.path.join(folder, library))


def command(tools, job, with_cuda, source, target):
    """What compiles one source."""
    flags = [f"-DTORCH_EXTENSION_NAME={job['name']}", "-DTORCH_API_INCLUDE_EXTENSION_H"]
    flags += [f"-I{os.path.abspath(path.strip())}" for path in job["extra_include_paths"] or []]
    flags += ["-isystem", HEADERS]
    for header in implied_headers(read(source), with_cuda and tools._is_cuda_file(source)):
        flags += ["-include", header]
    python = sysconfig.get_path("include", scheme="posix_prefix")
    flags += ["-isystem", python] if python else []
    if with_cuda and tools._is_cuda_file(source):
        extra = split(job["extra_cuda_cflags"])
        flags += tools.COMMON_NVCC_FLAGS + architecture(extra) + ["--compiler-options", "-fPIC", *extra]
        flags += [] if any(flag.startswith(("-std=", "--std")) for flag in extra) else ["-std=c++17"]
        host = ["-ccbin", os.environ["CC"]] if os.environ.get("CC") else []
        return [nvcc(tools), *host, *flags, "-c", source, "-o", target]
    if with_cuda:
        flags += ["-isystem", os.path.join(home(tools), "include")]
    return [*host_compiler(), *flags, "-fPIC", "-std=c++17", *split(job["extra_cflags"]), "-c", source, "-o", target]


def linking(tools, job, with_cuda, objects, library):
    """What links the objects."""
    flags = split(job["extra_ldflags"])
    if with_cuda:
        folder = next((f for f in ("lib64", "lib") if os.path.isdir(os.path.join(home(tools), f))), "lib64")
        folder = os.path.join(home(tools), folder)
        flags += [f"-L{folder}", f"-Wl,-rpath,{folder}", "-lcudart"]
    return [*host_compiler(), *objects, "-shared", *flags, "-o", library]


def host_compiler():
    return shlex.split(os.environ.get("CXX", "c++"))


def split(flags):
    """Flags as a shell would read them, for that is where torch sends them."""
    return [part for flag in flags or [] for part in shlex.split(flag)]


def architecture(extra):
    """For which GPUs: those that the candidate's flags name, else those of TORCH_CUDA_ARCH_LIST, as torch has it."""
    if any("arch" in flag for flag in extra):
        return []
    flags = []
    for named in re.split("[ ;]+", os.environ.get("TORCH_CUDA_ARCH_LIST", "").strip(" ;")):
        found = re.fullmatch(r"(\d+)\.(\d+[af]?)(\+PTX)?", named)
        if not found:
            raise Fails(f"for which GPU? TORCH_CUDA_ARCH_LIST names {named!r}")
        number = found[1] + found[2]
        codes = [f"sm_{number}", f"compute_{number}"] if found[3] else [f"sm_{number}"]
        flags += [f"-gencode=arch=compute_{number},code={code}" for code in codes]
    return flags


def home(tools):
    found = os.environ.get("CUDA_HOME") or tools.CUDA_HOME
    if not found:
        raise Fails("there is no CUDA toolkit")
    return found


def nvcc(tools):
    return os.environ.get("PYTORCH_NVCC") or os.path.join(home(tools), "bin", "nvcc")


def implied_headers(text, is_cuda):
    """Headers that a source needs and may have relied on torch to include."""
    names = set(re.findall(r"\bstd::(\w+)", text))
    found = [header for header, named in NAMED_IN_STD.items() if any(re.fullmatch(named, name) for name in names)]
    found += ["cassert"] if re.search(r"\bassert\s*\(", text) else []
    return found + [header for header, named in CUDA.items() if is_cuda and re.search(rf"\b({named})\b", text)]


def run(commands, folder):
    """Runs them side by side in a folder; what the first of them prints that fails is why all fail."""
    said = [""] * len(commands)

    def one(at, command):
        try:
            in_halves = os.path.basename(command[0]) == "nvcc" and compiler.compile_in_halves(command, folder, PATIENCE)
            said[at] = "" if in_halves else compiler.complaint(command, folder, PATIENCE)
        except compiler.Fails as fails:
            said[at] = str(fails)
        except Exception as error:
            said[at] = f"{type(error).__name__}: {error}"

    running = [threading.Thread(target=one, args=numbered) for numbered in enumerate(commands)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    if failed := [complaint for complaint in said if complaint]:
        raise Fails(first_errors(failed[0]))


def first_errors(text):
    lines = text.splitlines()
    errors = [line for line in lines if "error" in line]
    return "\n".join((errors or lines)[:8])


def fingerprint(sources, commands):
    """What the result depends on, so that neither this process nor a later one in the same folder builds it again."""
    text = hashlib.sha256(repr(commands).encode())
    for source in sources:
        text.update(read(source).encode())
    return text.hexdigest()[:32]


def read(path):
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def load(name, library):
    """The module in a library."""
    make = getattr(ctypes.PyDLL(library), f"slim_module_{name}", None)
    if make is None:
        raise Fails(f"the library holds no module `{name}`")
    make.restype = ctypes.py_object
    module = make()
    module.__file__ = library
    return module
