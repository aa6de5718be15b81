"""What do the two sides say, and how are values and tensors written down? JSON, and never a pickle."""

import json
import socket

import torch

LONGEST = 160 << 10
WENT = 0  # the first byte of an answer to "go"; JSON begins otherwise
ASIDE, BACK = b"\2", b"\3"  # no answers: in a first call, that the device is not needed, and that it is again


class Line:
    """One JSON object a packet, or the number of a "go", on a socket that keeps the bounds of messages."""

    def __init__(self, descriptor):
        self.socket = socket.socket(fileno=descriptor)
        self.packet = bytearray(LONGEST)

    def hear(self):
        """The next message; files that came with it are its `descriptors`."""
        packet, descriptors, _, _ = socket.recv_fds(self.socket, LONGEST, 4)
        self.packet[: len(packet)] = packet
        message = self.read(len(packet))
        if descriptors:
            message["descriptors"] = descriptors
        return message

    def hear_at_once(self):
        """As `hear`, without sleeping: to be woken takes longer, and not always as long."""
        take, packet, flag = self.socket.recv_into, self.packet, socket.MSG_DONTWAIT
        while True:
            try:
                return self.read(take(packet, 0, flag))
            except BlockingIOError:
                pass

    def read(self, length):
        if length == 8:
            return int.from_bytes(self.packet[:8], "little")
        return json.loads(bytes(self.packet[:length])) if length else None

    def say(self, message):
        self.socket.send(message if isinstance(message, bytes) else json.dumps(message).encode())


def encode(value, tensor):
    """A value as JSON; `tensor` writes down a tensor."""
    if isinstance(value, torch.Tensor):
        return {"tensor": tensor(value)}
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return {"float": repr(value)}
    if isinstance(value, torch.dtype):
        return {"dtype": name_of(value)}
    if isinstance(value, tuple):
        return {"tuple": [encode(item, tensor) for item in value]}
    if isinstance(value, list):
        return [encode(item, tensor) for item in value]
    if isinstance(value, dict):
        return {"dict": [[key, encode(item, tensor)] for key, item in value.items()]}
    raise TypeError(f"expected tensors, numbers, strings and lists, tuples or dictionaries of them, got {type(value)}")


def decode(value, tensor):
    """The value that was written down; `tensor` makes a tensor of what its counterpart wrote."""
    if isinstance(value, list):
        return [decode(item, tensor) for item in value]
    if not isinstance(value, dict):
        return value
    ((kind, inner),) = value.items()
    if kind == "tensor":
        return tensor(inner)
    if kind == "float":
        return float(inner)
    if kind == "dtype":
        return dtype_of(inner)
    if kind == "tuple":
        return tuple(decode(item, tensor) for item in inner)
    if kind == "dict":
        return {key: decode(item, tensor) for key, item in inner}
    raise ValueError(f"unknown kind of value {kind!r}")


def name_of(dtype):
    return str(dtype).removeprefix("torch.")


def dtype_of(name):
    dtype = getattr(torch, name, None)
    if not isinstance(dtype, torch.dtype):
        raise ValueError(f"unknown element type {name!r}")
    return dtype
