# wrong: it waits for a lock in C, holding the interpreter
# ours: hang
# where: by hand or GPU
import ctypes

import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        ctypes.PyDLL(None).sleep(3600)
        return nn.functional.softplus(x)
