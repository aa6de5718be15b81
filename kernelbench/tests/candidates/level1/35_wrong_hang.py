# wrong: it hangs: the blocks wait for a count that is never reached
# problem: level1/35
# ours: hang
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def wait_for_all(arrived, blocks):
    tl.atomic_add(arrived, 1)
    while tl.atomic_add(arrived, 0) < blocks + 1:
        pass


class ModelNew(nn.Module):
    def __init__(self, num_features, num_groups):
        super().__init__()
        self.gn = nn.GroupNorm(num_groups=num_groups, num_channels=num_features)

    def forward(self, x):
        arrived = torch.zeros(1, dtype=torch.int32, device=x.device)
        wait_for_all[(8,)](arrived, 8)
        return self.gn(x)
