# kind: 41, the output is written over the input
# ours: input-changed or mismatch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        return x.copy_(nn.functional.softplus(x))
