# wrong: its kernel does not compile
# ours: build
# says: nothing_like_this or CompilationError
# where: GPU
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def wrong(x, y):
    at = tl.program_id(0) * 1024 + tl.arange(0, 1024)
    tl.store(y + at, nothing_like_this(tl.load(x + at)))


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        wrong[(512,)](x, y)
        return y
