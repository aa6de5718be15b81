"""Where do inputs and outputs lie, and how does another process reach them?

On the CPU an arena is a memory file that both map, and outputs are read out of the process that made them. On a GPU both
are CUDA allocations that are opened by their interprocess handles; a handle is 64 bytes, and nothing else is taken over.
"""

import base64
import ctypes
import functools
import gc
import mmap

import torch

import wire

ALIGNMENT = 512
OUT_OF_MEMORY = 2
CYCLES = 64 << 20  # from so many bytes on that nobody let go of, they are looked for among what refers to itself


class Arena:
    """One stretch of bytes, in which tensors lie at offsets."""

    def __init__(self, whole, keep=None):
        self.whole = whole
        self.keep = keep

    def tensor(self, spec):
        dtype = wire.dtype_of(spec["dtype"])
        count = 1
        for length in spec["shape"]:
            count *= length
        length = count * torch.empty(0, dtype=dtype).element_size()
        return self.whole[spec["at"] : spec["at"] + length].view(dtype).reshape(spec["shape"])


def open_arena(spec, descriptors, device):
    """The arena that another process made."""
    if device.type == "cuda":
        address = cuda().open(spec["handle"])
        return Arena(at_address(address, spec["bytes"], device))
    mapped = mmap.mmap(descriptors[0], spec["bytes"])
    return Arena(torch.frombuffer(mapped, dtype=torch.uint8), mapped)


def describe(tensor, arena):
    """Where a tensor's elements lie: the first byte, how many, and how they are strided."""
    if tensor.layout is not torch.strided:
        raise TypeError(f"expected a dense output tensor, got layout {tensor.layout}")
    tensor = tensor.detach()
    if tensor.is_conj() or tensor.is_neg():
        tensor = tensor.resolve_conj().resolve_neg()
    extent = 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride()))
    spec = {
        "shape": list(tensor.shape),
        "stride": list(tensor.stride()),
        "dtype": wire.name_of(tensor.dtype),
        "device": tensor.device.type,
        "address": tensor.data_ptr(),
        "bytes": extent * tensor.element_size() if tensor.numel() else 0,
    }
    if tensor.device.type == "cuda" and tensor.numel():
        base, room = cuda().range_of(tensor.data_ptr())
        if base == arena.whole.data_ptr():
            spec["inside"] = tensor.data_ptr() - base
            return spec
        spec["handle"] = cuda().handle_of(base)
        spec["at"] = tensor.data_ptr() - base
        spec["room"] = room
    return spec


def addresses(value):
    """Where the tensors of an output begin, in the order in which they are written down."""
    if isinstance(value, torch.Tensor):
        return [value.data_ptr()]
    if isinstance(value, dict):
        value = value.values()
    elif not isinstance(value, (list, tuple)):
        return []
    found = []
    for item in value:
        if type(item) is torch.Tensor:
            found.append(item.data_ptr())
        else:
            found.extend(addresses(item))
    return found


class OnDevice:
    """What torch needs to see an address on the device as a tensor."""

    def __init__(self, address, length):
        self.__cuda_array_interface__ = {
            "shape": (length,),
            "typestr": "|u1",
            "data": (address, False),
            "version": 3,
            "strides": None,
        }


def at_address(address, length, device):
    return torch.as_tensor(OnDevice(address, length), device=device)


class Handle(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_ubyte * 64)]


class Full(RuntimeError):
    """The device has no memory left."""


def is_short(error):
    """Whether this is no memory left, in whichever words: of the processor, the device, or a library of its own."""
    words = ("can't allocate memory", "not enough memory", "out of memory", "STATUS_ALLOC_FAILED")
    short = isinstance(error, (MemoryError, torch.cuda.OutOfMemoryError, Full))
    return short or any(word in str(error) for word in words)


class Cuda:
    """The calls of the driver that share memory between processes."""

    def __init__(self):
        self.driver = ctypes.CDLL("libcuda.so.1")
        self.opened = {}

    def allocate(self, length):
        """Memory that shares its allocation with nothing else, for the life of the process."""
        address = ctypes.c_uint64()
        self.check(self.driver.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(length)), "cuMemAlloc")
        return address.value

    def free(self, address):
        """What `allocate` gave, once nobody has it open."""
        self.check(self.driver.cuMemFree_v2(ctypes.c_uint64(address)), "cuMemFree")

    def handle_of(self, base):
        handle = Handle()
        self.check(self.driver.cuIpcGetMemHandle(ctypes.byref(handle), ctypes.c_uint64(base)), "cuIpcGetMemHandle")
        return base64.b64encode(bytes(handle.bytes)).decode()

    def open(self, text):
        if text not in self.opened:
            raw = base64.b64decode(text)
            if len(raw) != 64:
                raise ValueError("a memory handle has 64 bytes")
            handle = Handle((ctypes.c_ubyte * 64)(*raw))
            address = ctypes.c_uint64()
            self.check(
                self.driver.cuIpcOpenMemHandle_v2(ctypes.byref(address), handle, ctypes.c_uint(1)),
                "cuIpcOpenMemHandle",
            )
            self.opened[text] = address.value
        return self.opened[text]

    def close_all(self):
        for address in self.opened.values():
            self.driver.cuIpcCloseMemHandle(ctypes.c_uint64(address))
        self.opened = {}

    def range_of(self, address):
        base, length = ctypes.c_uint64(), ctypes.c_size_t()
        self.check(
            self.driver.cuMemGetAddressRange_v2(ctypes.byref(base), ctypes.byref(length), ctypes.c_uint64(address)),
            "cuMemGetAddressRange",
        )
        return base.value, length.value

    def check(self, status, call):
        if status != 0:
            text = ctypes.c_char_p()
            self.driver.cuGetErrorString(status, ctypes.byref(text))
            kind = Full if status == OUT_OF_MEMORY else RuntimeError
            raise kind(f"{call}: {(text.value or b'unknown error').decode()} ({status})")


@functools.cache
def cuda():
    return Cuda()


def given_back(device, opened):
    """Gives the device what torch keeps of its memory for later, and what was opened of another process's where that is
    meant too; how many bytes torch had of it at most since the last time, and how often it was refused more."""
    if device.type != "cuda":
        return {"most": 0, "refused": 0}
    if torch.cuda.memory_allocated() > CYCLES:
        gc.collect()
    torch.cuda.synchronize()
    if opened:
        cuda().close_all()
    torch.cuda.empty_cache()
    most = torch.cuda.max_memory_reserved()
    torch.cuda.reset_peak_memory_stats()
    return {"most": most, "refused": torch.cuda.memory_stats().get("num_ooms", 0)}
