"""What inputs does a problem draw, and how are they walked through?"""

import torch

import memory
from tolerance import computable


def tensors(value):
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from tensors(item)
    elif isinstance(value, dict):
        for item in value.values():
            yield from tensors(item)


def mapped_tensors(value, change):
    if isinstance(value, torch.Tensor):
        return change(value)
    if isinstance(value, (list, tuple)):
        return type(value)(mapped_tensors(item, change) for item in value)
    if isinstance(value, dict):
        return {key: mapped_tensors(item, change) for key, item in value.items()}
    return value


def signed(drawn):
    """The same inputs with numbers of both signs and a wider range, where they were positive throughout."""

    def widen(tensor):
        if not tensor.is_floating_point() or not tensor.numel():
            return tensor
        values = computable(tensor)
        positive = float(values.min()) >= 0 and values.max() <= 1
        return (values * 6).sub_(3).to(tensor.dtype) if positive else tensor

    return mapped_tensors(drawn, widen)


def padded(tensor):
    length = tensor.numel() * tensor.element_size()
    return max(1, -(-length // memory.ALIGNMENT)) * memory.ALIGNMENT
