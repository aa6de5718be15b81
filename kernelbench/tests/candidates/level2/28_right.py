# right: torch's product with the bias, then one Triton kernel that normalises a row, adds and multiplies
# problem: level2/28
# ours: passed
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def finish(x, y, out, length, eps, BLOCK: tl.constexpr):
    start = tl.program_id(0).to(tl.int64) * length
    lanes = tl.arange(0, BLOCK)
    mask = lanes < length
    v = tl.load(x + start + lanes, mask=mask, other=0.0)
    w = tl.load(y + start + lanes, mask=mask, other=0.0)
    mean = tl.sum(v, 0) / length
    off = tl.where(mask, v - mean, 0.0)
    v = off / tl.sqrt(tl.sum(off * off, 0) / length + eps)
    tl.store(out + start + lanes, (v + w) * w, mask=mask)


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features, eps=1e-5, momentum=0.1):
        super().__init__()
        self.bmm = nn.Linear(in_features, out_features)
        self.eps = eps

    def forward(self, x, y):
        x = self.bmm(x)
        rows, length = x.shape
        out = torch.empty_like(x)
        finish[(rows,)](x, y, out, length, self.eps, BLOCK=triton.next_power_of_2(length), num_warps=8)
        return out
