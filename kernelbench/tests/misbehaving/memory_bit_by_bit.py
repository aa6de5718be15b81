# wrong: it takes all of the device's memory, bit by bit
# ours: memory
# where: GPU
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        kept = []
        while True:
            kept.append(torch.ones(1 << 29, device=x.device))
