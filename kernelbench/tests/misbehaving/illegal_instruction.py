# wrong: it jumps into what is no code
# ours: crash
# says: SIGILL
# where: by hand or GPU
import ctypes
import mmap

import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
        page.write(b"\x0f\x0b")
        ctypes.CFUNCTYPE(None)(ctypes.addressof(ctypes.c_char.from_buffer(page)))()
        return nn.functional.softplus(x)
