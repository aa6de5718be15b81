# wrong: it resets the device
# ours: crash or raised or interface or exit or hang or not faster
# where: GPU
import ctypes

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        torch.cuda.synchronize()
        ctypes.CDLL("libcuda.so.1").cuDevicePrimaryCtxReset_v2(0)
        return nn.functional.softplus(x)
