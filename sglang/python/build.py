"""Builds the libraries of this folder with nvcc and torch's headers, and prints where they are."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from PACKAGE import guard, library  # noqa: E402

for kernel in guard.SWAP["kernels"]:
    print(library.built(kernel))
