# wrong: a kernel writes far out of bounds
# ours: crash
# says: illegal memory access
# where: GPU
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def far(y, away):
    tl.store(y + away + tl.program_id(0) * 1024 + tl.arange(0, 1024), 1.0)


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        far[(1024,)](y, 1 << 36)
        return y
