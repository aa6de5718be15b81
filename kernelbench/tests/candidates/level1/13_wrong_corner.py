# wrong: the last tile of the product's corner lacks the last step of its sum
# problem: level1/13
# ours: mismatch
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def spoil(a, b, c, n, TILE: tl.constexpr):
    """Takes the last term of the sum away from the last tile."""
    rows = n - TILE + tl.arange(0, TILE)
    columns = n - TILE + tl.arange(0, TILE)
    last = tl.load(a + rows * n + n - 1)[:, None] * tl.load(b + (n - 1) * n + columns)[None, :]
    place = c + rows[:, None] * n + columns[None, :]
    tl.store(place, tl.load(place) - last)


class ModelNew(nn.Module):
    def forward(self, A, B):
        c = torch.matmul(A, B)
        spoil[(1,)](A, B, c, A.shape[0], TILE=16)
        return c
