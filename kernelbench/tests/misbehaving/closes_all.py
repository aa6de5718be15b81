# wrong: it closes all file descriptors
# ours: forbidden or exit
import os

import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        os.closerange(0, 1 << 12)
        return nn.functional.softplus(x)
