# kind: 26, the input is handed back
# problem: 7_ReLU
# ours: mismatch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        return x
