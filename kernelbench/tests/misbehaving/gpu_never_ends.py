# wrong: a kernel never ends
# ours: hang
# where: GPU
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def forever(flag):
    while tl.atomic_add(flag, 0) == 0:
        pass


class ModelNew(nn.Module):
    def forward(self, x):
        forever[(1,)](torch.zeros(1, dtype=torch.int32, device=x.device))
        return nn.functional.softplus(x)
