"""All is said in pyproject.toml; here is what this Python's setuptools must have for that, since pip without isolation asks nobody."""

import importlib.util
import re
import sys

import setuptools

here = tuple(int(part) for part in re.findall(r"\d+", setuptools.__version__)[:2])
said = f"warpsmith: setuptools {setuptools.__version__} of {sys.executable}"
if here < (61, 0):
    sys.exit(f"{said} does not read pyproject.toml: install 61 or newer, by {sys.executable} -m pip install -U setuptools")
if here < (70, 1) and importlib.util.find_spec("wheel") is None:
    sys.exit(
        f"{said} builds wheels with the package wheel, which is not installed: {sys.executable} -m pip install wheel, or "
        "-U setuptools"
    )
setuptools.setup()
