# wrong: its module reads address 0
# ours: crash
# says: SIGSEGV
# where: by hand or GPU
import ctypes

import torch.nn as nn

ctypes.string_at(0)


class ModelNew(nn.Module):
    def forward(self, x):
        return nn.functional.softplus(x)
