# wrong: it raises with a long text
# ours: raised
# says: ValueError
# where: by hand or GPU
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        raise ValueError("x" * (1 << 20))
