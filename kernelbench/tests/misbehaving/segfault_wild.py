# wrong: it writes to a wild address
# ours: crash
# says: SIGSEGV
# where: by hand or GPU
import ctypes

import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        ctypes.memset(0x123456789000, 1, 64)
        return nn.functional.softplus(x)
