# wrong: it writes out of bounds: rows are placed by the length of a byte row
# problem: level1/89
# ours: crash
# says: illegal memory access or on global/shared address space
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def scan(x, y, length: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * length
    lanes = tl.arange(0, BLOCK)
    before = 0.0
    for start in range(0, length, BLOCK):
        mask = start + lanes < length
        v = tl.load(x + row + start + lanes, mask=mask, other=0.0)
        tl.store(y + row * 4096 + start + lanes, tl.cumsum(v, 0) + before, mask=mask)
        before += tl.sum(v, 0)


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.dim = dim

    def forward(self, x):
        y = torch.empty_like(x)
        scan[(x.numel() // x.shape[-1],)](x, y, x.shape[-1], BLOCK=4096, num_warps=8)
        return y
