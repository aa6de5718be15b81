"""Outputs of both sides: where they lie, and what stood there when.

Descriptions come from a stranger: nothing is read that they do not bound.
"""

import mmap
import os

import torch

import compare
import memory
import wire


class Outputs:
    """The outputs of both sides, as the verifier reads them."""

    def ranges(self, message):
        """Which bytes of whose memory the outputs are, once their form is right."""
        reads, at = [], 0
        for side in ("reference", "candidate"):
            for slot in range(len(message[side])):
                specs = compare.leaves(message[side][slot])
                if side == "candidate":
                    problem = compare.form(compare.leaves(message["reference"][slot]), specs)
                    if problem:
                        return {"form": problem}
                for _, spec in specs:
                    if "tensor" in spec and self.device.type == "cpu":
                        address, length = spec["tensor"]["address"], spec["tensor"]["bytes"]
                        reads.append({"side": side, "address": address, "bytes": length, "to": at})
                        at += -(-length // memory.ALIGNMENT) * memory.ALIGNMENT
        if self.device.type == "cpu" and at:
            os.ftruncate(self.outputs, at)
        return {"reads": reads}

    def fetch(self, message):
        if self.device.type == "cuda":
            return tuple(
                [self.on_device(slot, at) for slot in message[side]] for at, side in enumerate(("reference", "candidate"))
            )
        whole = os.fstat(self.outputs).st_size
        mapped = mmap.mmap(self.outputs, whole, prot=mmap.PROT_READ | mmap.PROT_WRITE) if whole else bytearray(1)
        buffer = torch.frombuffer(mapped, dtype=torch.uint8)
        at = 0
        sides = []
        for side in ("reference", "candidate"):
            slots = []
            for slot in message[side]:
                tensors_of_slot = []
                for path, spec in compare.leaves(slot):
                    if "tensor" in spec:
                        length = spec["tensor"]["bytes"]
                        tensors_of_slot.append((path, strided(buffer[at : at + length], spec["tensor"])))
                        at += -(-length // memory.ALIGNMENT) * memory.ALIGNMENT
                    else:
                        tensors_of_slot.append((path, spec["value"]))
                slots.append(tensors_of_slot)
            sides.append(slots)
        return tuple(sides)

    def on_device(self, slot, side):
        found = []
        for path, leaf in compare.leaves(slot):
            if "tensor" not in leaf:
                found.append((path, leaf["value"]))
                continue
            spec = leaf["tensor"]
            if spec["device"] != self.device.type:
                raise ValueError(f"{path}: expected a tensor on {self.device.type}, got one on {spec['device']}"[:200])
            if "inside" in spec:
                whole = self.arenas[side][0].whole
                if not 0 <= spec["inside"] <= whole.numel() - spec["bytes"]:
                    raise ValueError("an output lies outside the inputs it is said to lie in")
                flat = whole[spec["inside"] : spec["inside"] + spec["bytes"]]
                found.append((path, strided(flat, spec)))
                continue
            if not spec["bytes"]:
                if 0 not in spec["shape"]:
                    raise ValueError("an output without bytes has elements")
                found.append((path, torch.empty(spec["shape"], dtype=wire.dtype_of(spec["dtype"]), device=self.device)))
                continue
            base = memory.cuda().open(spec["handle"])
            start, length = memory.cuda().range_of(base)
            if spec["at"] < 0 or base + spec["at"] + spec["bytes"] > start + length:
                raise ValueError("an output lies outside its allocation")
            found.append((path, strided(memory.at_address(base + spec["at"], spec["bytes"], self.device), spec)))
        return found

    def spot_check(self, message):
        """Elements at places that nobody else knows, as they are now: what is written later shows."""
        generator = torch.Generator(device=self.device).manual_seed(message["seed"])
        self.seen = []
        for slot in message["candidate"]:
            for path, tensor in self.on_device(slot, 1):
                if not isinstance(tensor, torch.Tensor) or not tensor.numel():
                    continue
                places = torch.randint(tensor.numel(), (1 << 14,), device=self.device, generator=generator)
                self.seen.append((path, tensor, places, take(tensor, places)))
        self.synchronize()
        return {}

    def late(self):
        """Which output has changed since the spot check."""
        self.synchronize()
        for path, tensor, places, before in self.seen:
            if not torch.equal(compare.bits(take(tensor, places)), compare.bits(before)):
                return {"late": path}
        return {"late": None}


def strided(flat, spec):
    dtype = wire.dtype_of(spec["dtype"])
    return flat.view(dtype).as_strided(spec["shape"], spec["stride"])


def take(tensor, places):
    index, rest = [], places
    for length in reversed(tensor.shape):
        index.insert(0, rest % length)
        rest = rest // length
    return tensor[tuple(index)] if index else tensor.expand(places.shape).clone()
