# right: torch's convolution, then one Triton kernel that normalises a plane it holds in registers, and divides
# problem: level2/17
# ours: passed
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def normalise(x, y, plane, eps, divisor, BLOCK: tl.constexpr):
    start = tl.program_id(0).to(tl.int64) * plane
    lanes = tl.arange(0, BLOCK)
    mask = lanes < plane
    v = tl.load(x + start + lanes, mask=mask, other=0.0)
    mean = tl.sum(v, 0) / plane
    off = tl.where(mask, v - mean, 0.0)
    deviation = tl.sqrt(tl.sum(off * off, 0) / plane + eps)
    tl.store(y + start + lanes, off / (deviation * divisor), mask=mask)


class ModelNew(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size, divide_by):
        super().__init__()
        self.conv = nn.Conv2d(in_channels, out_channels, kernel_size)
        self.instance_norm = nn.InstanceNorm2d(out_channels)
        self.divide_by = divide_by

    def forward(self, x):
        x = self.conv(x).contiguous()
        batch, channels, height, width = x.shape
        plane = height * width
        y = torch.empty_like(x)
        block = triton.next_power_of_2(plane)
        normalise[(batch * channels,)](x, y, plane, self.instance_norm.eps, self.divide_by, BLOCK=block, num_warps=16)
        return y
