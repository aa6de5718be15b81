# wrong: an alarm ends it
# ours: crash
# says: signal 14 or SIGALRM
# where: by hand or GPU
import signal
import time

import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        time.sleep(1)
        return nn.functional.softplus(x)
