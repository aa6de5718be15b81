# wrong: a kernel on another stream never ends
# ours: hang
# where: GPU
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def forever(flag):
    while tl.atomic_add(flag, 0) == 0:
        pass


class ModelNew(nn.Module):
    def forward(self, x):
        flag = torch.zeros(1, dtype=torch.int32, device=x.device)
        with torch.cuda.stream(torch.cuda.Stream()):
            forever[(1,)](flag)
        return nn.functional.softplus(x)
