# wrong: it leaves a daemon
# ours: forbidden
# says: leave another process
import os
import time

import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                os.closerange(0, 1 << 12)
                time.sleep(3600)
            os._exit(0)
        os.wait()
        return nn.functional.softplus(x)
