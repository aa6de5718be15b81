# wrong: it prints without end
# ours: flood
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        while True:
            print("x" * 4096)
