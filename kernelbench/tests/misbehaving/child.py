# wrong: it leaves a child
# ours: forbidden
# says: leave another process
# where: by hand or GPU
import subprocess

import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        self.child = subprocess.Popen(["sleep", "3600"])
        return nn.functional.softplus(x)
