# wrong: it puts out a tensor on the processor
# ours: interface
# says: expected a tensor on cuda
# where: GPU
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        return nn.functional.softplus(x).cpu()
