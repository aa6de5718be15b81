"""Stands in for pip: the folder is there, and nothing in it."""

import pathlib
import sys

pathlib.Path(sys.argv[sys.argv.index("--target") + 1]).mkdir(parents=True)
