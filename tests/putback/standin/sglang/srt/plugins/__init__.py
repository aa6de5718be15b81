"""Loads what is installed under the entry point, then puts the hooks in place."""

from importlib.metadata import entry_points

from sglang.srt.plugins.hook_registry import HookRegistry


def load_plugins():
    for found in entry_points(group="sglang.srt.plugins"):
        found.load()()
    HookRegistry.apply_hooks()
