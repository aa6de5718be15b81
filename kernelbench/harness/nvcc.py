"""One CUDA source compiled on two cores: the host's half beside the device's.

The script beside this file does it, as it does for kernels without Python. Where nvcc's steps look different from those known
there, or one of them fails, nvcc does it alone: what it then says of a source that is wrong is its own.
"""

import os
import signal
import subprocess
import tempfile

HALVES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "nvcc_halves.sh")
TOO_LONG = "the compiler took too long"


class Fails(Exception):
    """A command failed: what it said."""


def compile_in_halves(line, folder, patience):
    """Compiles as this command line would, which ends with the name of its object; false where nvcc is to do it alone."""
    *line, target = line
    with tempfile.TemporaryDirectory(dir=folder) as apart:
        said = complaint(["sh", HALVES, *line, os.path.join(folder, target)], apart, patience)
    if said == TOO_LONG:
        raise Fails(TOO_LONG)
    return not said


def complaint(command, folder, patience):
    """Runs a command; what it said where it failed, else nothing."""
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    with subprocess.Popen(command, cwd=folder, start_new_session=True, **pipes) as running:
        try:
            said, _ = running.communicate(timeout=patience)
        except subprocess.TimeoutExpired:
            os.killpg(running.pid, signal.SIGKILL)
            return TOO_LONG
    if not running.returncode:
        return ""
    return said.decode(errors="replace").strip() or f"the compiler ended with {running.returncode}"
