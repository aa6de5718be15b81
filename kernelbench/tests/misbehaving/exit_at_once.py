# wrong: it ends its process with status 0
# ours: exit
import os

import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        os._exit(0)
