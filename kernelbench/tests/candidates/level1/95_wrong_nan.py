# wrong: it is not a number: exponentials of numbers that are too large, without the maximum taken off
# problem: level1/95
# ours: mismatch
# says: "got":"nan"
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, predictions, targets):
        large = (1000 * predictions).exp()
        chances = large / large.sum(1, keepdim=True)
        return -chances.gather(1, targets[:, None]).log().mean()
