"""Builds nothing: a module is the names that it exports, and remembers the file that it is of."""

import pathlib
import re

KERNEL_PATH = pathlib.Path(__file__).parent.parent
built, called = [], []


class Module:
    def __init__(self, name, files, wrappers):
        self.files = files
        for export, _ in wrappers:
            setattr(self, export, lambda *args, _export=export: called.append((files[0], _export)))


def load_jit(*args, cuda_files=(), cuda_wrappers=(), extra_cuda_cflags=None, extra_include_paths=None):
    file = KERNEL_PATH / "csrc" / cuda_files[0]
    text = file.read_text()
    if "#error" in text:
        raise RuntimeError("nvcc: error")
    folders = [file.parent, KERNEL_PATH / "include", *map(pathlib.Path, extra_include_paths or [])]
    for header in re.findall(r'#include "(.*)"', text):
        if not any((folder / header).is_file() for folder in folders):
            raise RuntimeError(f"nvcc: fatal error: {header}: No such file or directory")
    built.append((args, str(cuda_files[0])))
    return Module(args, [str(file) for file in cuda_files], cuda_wrappers)
