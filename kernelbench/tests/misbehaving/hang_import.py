# wrong: its module never ends
# ours: hang
# where: by hand or GPU
import time

import torch.nn as nn

time.sleep(3600)


class ModelNew(nn.Module):
    def forward(self, x):
        return nn.functional.softplus(x)
