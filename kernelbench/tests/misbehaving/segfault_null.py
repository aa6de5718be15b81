# wrong: it reads address 0
# ours: crash
# says: SIGSEGV
import ctypes

import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        ctypes.string_at(0)
        return nn.functional.softplus(x)
