# wrong: it puts out nothing
# ours: interface
# says: expected a tensor
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        return None
