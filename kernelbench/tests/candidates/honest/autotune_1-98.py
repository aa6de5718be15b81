# right: a Triton kernel for the divergence of each row, tuned over twelve configurations, then torch's sum
# problem: level1/98
# ours: passed
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.autotune(
    configs=[triton.Config({"BLOCK": block}, num_warps=warps, num_stages=stages)
             for block, warps in ((1024, 4), (1024, 8), (2048, 4), (2048, 8), (4096, 8), (4096, 16)) for stages in (1, 3)],
    key=["width"],
)
@triton.jit
def divergence(predictions, targets, sums, width, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    acc = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, width, BLOCK):
        at = start + tl.arange(0, BLOCK)
        mask = at < width
        p = tl.load(predictions + row * width + at, mask=mask, other=1.0)
        t = tl.load(targets + row * width + at, mask=mask, other=0.0)
        own = tl.where(t > 0, t * tl.log(tl.where(t > 0, t, 1.0)), 0.0)
        acc += own - t * tl.log(p)
    tl.store(sums + row, tl.sum(acc, axis=0))


class ModelNew(nn.Module):
    def forward(self, predictions, targets):
        predictions, targets = predictions.contiguous(), targets.contiguous()
        rows, width = predictions.shape
        sums = torch.empty(rows, device=predictions.device, dtype=torch.float32)
        divergence[(rows,)](predictions, targets, sums, width)
        return sums.sum() / rows
