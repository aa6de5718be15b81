# wrong: it kills all that it may
# ours: passed or raised
# says: ProcessLookupError or PermissionError
# where: by hand or GPU
import os
import signal

import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        os.kill(-1, signal.SIGKILL)
        return nn.functional.softplus(x)
