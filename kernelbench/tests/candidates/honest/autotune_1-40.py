# right: two Triton kernels, moments of parts of a row and the normalisation, each tuned over six to eight configurations
# problem: level1/40
# ours: passed
import torch
import torch.nn as nn
import triton
import triton.language as tl

PART = 16384


@triton.autotune(
    configs=[triton.Config({"BLOCK": block}, num_warps=warps)
             for block, warps in ((1024, 4), (1024, 8), (2048, 4), (2048, 8), (4096, 8), (4096, 16))],
    key=["width"],
)
@triton.jit
def moments(x, means, squares, width, parts, PART: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(1).to(tl.int64)
    part = tl.program_id(0)
    count = tl.minimum(width - part * PART, PART)
    base = x + row * width + part * PART
    acc = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, PART, BLOCK):
        at = start + tl.arange(0, BLOCK)
        acc += tl.load(base + at, mask=at < count, other=0.0)
    mean = tl.sum(acc, axis=0) / count
    acc = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, PART, BLOCK):
        at = start + tl.arange(0, BLOCK)
        mask = at < count
        apart = tl.where(mask, tl.load(base + at, mask=mask, other=0.0) - mean, 0.0)
        acc += apart * apart
    tl.store(means + row * parts + part, mean)
    tl.store(squares + row * parts + part, tl.sum(acc, axis=0))


@triton.autotune(
    configs=[triton.Config({"BLOCK": block}, num_warps=warps)
             for block in (512, 1024, 2048, 4096) for warps in (4, 8)],
    key=["width"],
)
@triton.jit
def normalise(x, weight, bias, means, scales, y, width, BLOCK: tl.constexpr):
    row = tl.program_id(1).to(tl.int64)
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < width
    v = (tl.load(x + row * width + at, mask=mask, other=0.0) - tl.load(means + row)) * tl.load(scales + row)
    v = v * tl.load(weight + at, mask=mask, other=0.0) + tl.load(bias + at, mask=mask, other=0.0)
    tl.store(y + row * width + at, v, mask=mask)


class ModelNew(nn.Module):
    def __init__(self, normalized_shape):
        super().__init__()
        self.ln = nn.LayerNorm(normalized_shape=normalized_shape)

    @torch.no_grad()
    def forward(self, x):
        x = x.contiguous()
        width = self.ln.weight.numel()
        rows = x.numel() // width
        parts = triton.cdiv(width, PART)
        means = torch.empty((rows, parts), device=x.device, dtype=torch.float32)
        squares = torch.empty_like(means)
        moments[(parts, rows)](x, means, squares, width, parts, PART=PART)
        counts = torch.full((parts,), float(PART), device=x.device)
        counts[-1] = width - (parts - 1) * PART
        mean = (means * counts).sum(1, keepdim=True) / width
        variance = (squares + counts * (means - mean) ** 2).sum(1) / width
        scales = torch.rsqrt(variance + self.ln.eps)
        y = torch.empty_like(x)
        normalise[lambda meta: (triton.cdiv(width, meta["BLOCK"]), rows)](
            x, self.ln.weight, self.ln.bias, mean, scales, y, width)
        return y
