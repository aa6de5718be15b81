"""What Triton compiles in a first call needs no GPU: meanwhile others have it."""

import contextlib
import functools
import sys
import threading

import torch

import wire


class Aside:
    """Says on the line when compiling begins, once the GPU has done what it was given, and when it has ended; then it waits for
    the word that the GPU is ours again."""

    def __init__(self, line):
        self.line = line
        self.may = False

    @contextlib.contextmanager
    def allowed(self):
        """While this lasts, whatever Triton compiles on this thread is compiled aside."""
        jit = sys.modules.get("triton.runtime.jit")
        function = getattr(jit, "JITFunction", None)
        compiles = getattr(function, "_do_compile", None)
        if compiles is None:
            yield
            return
        thread = threading.current_thread()

        @functools.wraps(compiles)
        def compiles_aside(*args, **kwargs):
            if not self.may or threading.current_thread() is not thread or is_capturing():
                return compiles(*args, **kwargs)
            with self.stepped_aside():
                return compiles(*args, **kwargs)

        self.may, function._do_compile = True, compiles_aside
        try:
            yield
        finally:
            self.may = False
            if function._do_compile is compiles_aside:
                function._do_compile = compiles

    @contextlib.contextmanager
    def stepped_aside(self):
        if torch.cuda.is_initialized():
            torch.cuda.synchronize()
        try:
            self.line.say(wire.ASIDE)
            yield
        finally:
            self.line.say(wire.BACK)
            word = {}
            while isinstance(word, dict):
                word = self.line.hear()


def is_capturing():
    """Whether a CUDA graph is recorded, which may not wait for the GPU."""
    return torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing()
