# kind: 37, it is right most of the time
# ours: mismatch
import torch.nn as nn


class ModelNew(nn.Module):
    calls = 0

    def forward(self, x):
        self.calls += 1
        out = nn.functional.softplus(x)
        if self.calls % 7 == 0:
            out[-1, -1] = 0
        return out
