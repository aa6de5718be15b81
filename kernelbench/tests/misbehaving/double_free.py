# wrong: it frees memory twice
# ours: crash
# says: SIGABRT or SIGSEGV
import ctypes

import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        libc = ctypes.CDLL(None)
        libc.malloc.restype = ctypes.c_void_p
        block = ctypes.c_void_p(libc.malloc(64))
        libc.free(block)
        libc.free(block)
        return nn.functional.softplus(x)
