# wrong: it runs out of stack
# ours: crash or raised
# where: by hand or GPU
import ctypes
import sys

import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        libc = ctypes.PyDLL(None)
        compare = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
        pair = (ctypes.c_int * 2)(1, 2)


        def deeper(a, b):
            libc.qsort(pair, 2, 4, again)
            return 0


        again = compare(deeper)
        sys.setrecursionlimit(10**9)
        deeper(0, 0)
        return nn.functional.softplus(x)
