# wrong: it never returns and listens to no signal
# ours: hang
# where: by hand or GPU
import signal
import time

import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 64))
        while True:
            time.sleep(1)
