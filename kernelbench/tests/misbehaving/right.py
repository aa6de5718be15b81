# right: what comes after all that
# ours: passed
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        return nn.functional.softplus(x)
