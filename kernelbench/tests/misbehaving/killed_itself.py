# wrong: it kills its own process
# ours: crash
# says: SIGKILL
import os
import signal

import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        os.kill(os.getpid(), signal.SIGKILL)
        return nn.functional.softplus(x)
