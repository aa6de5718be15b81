# wrong: it calls itself without end
# ours: raised
# says: RecursionError
# where: by hand or GPU
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        return self.forward(x)
