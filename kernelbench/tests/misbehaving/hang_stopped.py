# wrong: it stops its own process
# ours: hang
import os
import signal

import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        os.kill(os.getpid(), signal.SIGSTOP)
        return nn.functional.softplus(x)
