# wrong: it forks without end
# ours: forbidden or hang or raised or memory or exit
import os

import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        while True:
            os.fork()
