# wrong: it becomes another program
# ours: forbidden or hang or exit or raised
# where: by hand or GPU
import os

import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        os.execv("/bin/sleep", ["sleep", "60"])
