"""What inputs does a problem draw, and how are they walked through?"""

import torch

import memory


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
        if tensor.element_size() == 1:  # torch computes nothing with floats of eight bits
            return tensor
        positive = tensor.is_floating_point() and tensor.numel() and float(tensor.min()) >= 0
        return (tensor * 6).sub_(3) if positive and tensor.max() <= 1 else tensor

    return mapped_tensors(drawn, widen)


def padded(tensor):
    length = tensor.numel() * tensor.element_size()
    return max(1, -(-length // memory.ALIGNMENT)) * memory.ALIGNMENT
