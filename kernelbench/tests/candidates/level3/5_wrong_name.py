# wrong: it defines no ModelNew
# problem: level3/5
# ours: interface
# says: ModelNew
import torch.nn as nn


class FastAlexNet(nn.Module):
    def forward(self, x):
        return x
