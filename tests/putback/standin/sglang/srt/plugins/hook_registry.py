"""Functions by their path, and what is put around them."""

import enum
import functools
import importlib
import sys


class HookType(enum.Enum):
    AROUND = "around"
    REPLACE = "replace"


class HookRegistry:
    hooks = []

    @classmethod
    def register(cls, target, hook, hook_type):
        cls.hooks.append((target, hook, hook_type))

    @classmethod
    def apply_hooks(cls):
        for target, hook, hook_type in cls.hooks:
            assert hook_type is HookType.AROUND
            path, name = target.rsplit(".", 1)
            try:
                module = importlib.import_module(path)
            except ImportError:
                # A method: the class is in the module.
                path, of = path.rsplit(".", 1)
                module = getattr(importlib.import_module(path), of)
            original = getattr(module, name)

            @functools.wraps(original)
            def wrapped(*args, _original=original, _hook=hook, **keywords):
                return _hook(_original, *args, **keywords)

            setattr(module, name, wrapped)
            for other in list(sys.modules.values()):
                for key, value in list(vars(other).items()) if other and isinstance(other, type(sys)) else []:
                    if value is original:
                        setattr(other, key, wrapped)
