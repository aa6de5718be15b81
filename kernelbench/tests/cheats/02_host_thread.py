# kind: 2, work that goes on in a thread after the return
# problem: 1_Softplus
# ours: mismatch or crash
import threading

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    calls = 0

    def forward(self, x):
        self.calls += 1
        if self.calls <= 5:
            return nn.functional.softplus(x)
        out = torch.empty_like(x)
        threading.Timer(0.05, lambda: out.copy_(nn.functional.softplus(x))).start()
        return out
