"""Stands in for torch on a machine with a GPU."""


class cuda:
    is_available = staticmethod(lambda: True)
