# wrong: a kernel reads far out of bounds
# ours: crash
# says: illegal memory access
# where: GPU
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def far(x, y, away):
    at = tl.program_id(0) * 1024 + tl.arange(0, 1024)
    tl.store(y + at, tl.load(x + away + at))


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        far[(512,)](x, y, 1 << 36)
        return y
