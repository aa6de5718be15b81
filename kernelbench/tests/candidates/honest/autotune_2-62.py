# right: torch's product, then group norm, leaky rectifier and doubling in one Triton kernel tuned over nine configurations
# problem: level2/62
# ours: passed
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.autotune(
    configs=[triton.Config({"GROUPS": groups}, num_warps=warps) for groups in (16, 64, 128) for warps in (2, 4, 8)],
    key=["total", "size"],
)
@triton.jit
def norm_leaky_twice(x, weight, bias, y, total, groups, size, eps, slope, SIZE: tl.constexpr, GROUPS: tl.constexpr):
    group = tl.program_id(0) * GROUPS + tl.arange(0, GROUPS)
    lane = tl.arange(0, SIZE)
    mask = (group[:, None] < total) & (lane[None, :] < size)
    at = group.to(tl.int64)[:, None] * size + lane[None, :]
    channel = (group % groups)[:, None] * size + lane[None, :]
    v = tl.load(x + at, mask=mask, other=0.0)
    mean = tl.sum(v, axis=1) / size
    v = tl.where(mask, v - mean[:, None], 0.0)
    scale = 1.0 / tl.sqrt(tl.sum(v * v, axis=1) / size + eps)
    v = v * scale[:, None] * tl.load(weight + channel, mask=mask, other=0.0)
    v += tl.load(bias + channel, mask=mask, other=0.0)
    v = tl.where(v > 0, v, v * slope)
    tl.store(y + at, v + v, mask=mask)


class ModelNew(nn.Module):
    def __init__(self, input_size, hidden_size, num_groups, eps=1e-5, negative_slope=0.01):
        super().__init__()
        self.fc = nn.Linear(input_size, hidden_size)
        self.gn = nn.GroupNorm(num_groups=num_groups, num_channels=hidden_size, eps=eps)
        self.leaky_relu = nn.LeakyReLU(negative_slope=negative_slope)

    @torch.no_grad()
    def forward(self, x):
        x = self.fc(x).contiguous()
        groups = self.gn.num_groups
        size = x.shape[1] // groups
        total = x.shape[0] * groups
        y = torch.empty_like(x)
        norm_leaky_twice[lambda meta: (triton.cdiv(total, meta["GROUPS"]),)](
            x, self.gn.weight, self.gn.bias, y, total, groups, size, float(self.gn.eps),
            float(self.leaky_relu.negative_slope), SIZE=triton.next_power_of_2(size))
        return y
