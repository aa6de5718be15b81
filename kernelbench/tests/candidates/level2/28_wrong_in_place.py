# wrong: it changes an input: the result is written over y
# problem: level2/28
# ours: input-changed
# says: input 1
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features, eps=1e-5, momentum=0.1):
        super().__init__()
        self.bmm = nn.Linear(in_features, out_features)
        self.instance_norm = nn.InstanceNorm2d(out_features, eps=eps, momentum=momentum)

    def forward(self, x, y):
        x = self.instance_norm(self.bmm(x)[:, None, None])[:, 0, 0]
        return y.mul_(x + y)
