# wrong: it puts out a million numbers in a list
# ours: exit or interface or raised or hang
# where: by hand or GPU
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        return [float(n) for n in range(1 << 20)]
