# right: one Triton kernel, a row a program with the maximum taken off, and torch's mean over the rows
# problem: level1/95
# ours: passed
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def losses_of(x, targets, losses, classes, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    lanes = tl.arange(0, BLOCK)
    v = tl.load(x + row * classes + lanes, mask=lanes < classes, other=-float("inf"))
    most = tl.max(v, 0)
    right = tl.load(x + row * classes + tl.load(targets + row))
    tl.store(losses + row, tl.log(tl.sum(tl.exp(v - most), 0)) + most - right)


class ModelNew(nn.Module):
    def forward(self, predictions, targets):
        rows, classes = predictions.shape
        losses = torch.empty(rows, device=predictions.device)
        losses_of[(rows,)](predictions, targets, losses, classes, BLOCK=triton.next_power_of_2(classes), num_warps=8)
        return losses.mean()
