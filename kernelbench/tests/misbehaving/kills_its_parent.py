# wrong: it kills the program
# ours: raised
# says: PermissionError or ProcessLookupError
import os
import signal

import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        os.kill(os.getppid(), signal.SIGKILL)
        return nn.functional.softplus(x)
