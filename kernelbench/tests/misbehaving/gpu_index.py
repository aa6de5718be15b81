# wrong: an index lies outside its tensor
# ours: crash or flood
# says: device-side assert or flood
# where: GPU
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        return x[torch.full((512,), 1 << 20, device=x.device)]
