# kind: 46, a process is left behind
# problem: 1_Softplus
# ours: forbidden
import os
import time

import torch.nn as nn


class ModelNew(nn.Module):
    left = False

    def forward(self, x):
        if not self.left:
            self.left = True
            if os.fork() == 0:
                os.setsid()
                if os.fork() == 0:
                    for stream in range(3):
                        os.close(stream)
                    time.sleep(5)
                os._exit(0)
        return nn.functional.softplus(x)
