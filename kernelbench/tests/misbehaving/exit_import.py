# wrong: its module ends its process
# ours: exit
# says: "status":7
# where: by hand or GPU
import os

import torch.nn as nn

os._exit(7)


class ModelNew(nn.Module):
    def forward(self, x):
        return nn.functional.softplus(x)
