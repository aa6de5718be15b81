# right: two Triton kernels: parts of each group are summed, then every element is normalised
# problem: level1/35
# ours: passed
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def moments(x, sums, squares, group, part: tl.constexpr, PARTS: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64)
    start = (at // PARTS) * group + (at % PARTS) * part
    lanes = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    square = tl.zeros((BLOCK,), tl.float32)
    for offset in range(0, part, BLOCK):
        v = tl.load(x + start + offset + lanes, mask=offset + lanes < part, other=0.0)
        total += v
        square += v * v
    tl.store(sums + at, tl.sum(total))
    tl.store(squares + at, tl.sum(square))


@triton.jit
def normalise(x, y, mean, scale, weight, bias, plane, channels, groups, CHUNKS, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64)
    of = at // CHUNKS
    channel = of % channels
    group = of // (channels // groups)
    lanes = (at % CHUNKS) * BLOCK + tl.arange(0, BLOCK)
    mask = lanes < plane
    v = tl.load(x + of * plane + lanes, mask=mask)
    gain = tl.load(scale + group) * tl.load(weight + channel)
    v = (v - tl.load(mean + group)) * gain + tl.load(bias + channel)
    tl.store(y + of * plane + lanes, v, mask=mask)


class ModelNew(nn.Module):
    def __init__(self, num_features, num_groups):
        super().__init__()
        self.gn = nn.GroupNorm(num_groups=num_groups, num_channels=num_features)

    def forward(self, x):
        batch, channels = x.shape[:2]
        plane = x.numel() // (batch * channels)
        groups = self.gn.num_groups
        size = plane * channels // groups
        parts = 64
        sums = torch.empty((2, batch * groups, parts), device=x.device)
        part = triton.cdiv(size, parts)
        assert part * parts == size
        moments[(batch * groups * parts,)](x, sums[0], sums[1], size, part, PARTS=parts, BLOCK=2048)
        first, second = sums.double().sum(2) / size
        scale = torch.rsqrt(second - first * first + self.gn.eps).float()
        y = torch.empty_like(x)
        chunks = triton.cdiv(plane, 4096)
        normalise[(batch * channels * chunks,)](
            x, y, first.float(), scale, self.gn.weight, self.gn.bias, plane, channels, groups, chunks, BLOCK=4096
        )
        return y
