# wrong: it puts out a function
# ours: raised
# says: expected tensors
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        return lambda: x
