# wrong: it puts out NaN
# ours: mismatch
# says: "got":"nan"
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        return nn.functional.softplus(x) * float("nan")
