# wrong: it has another shape: a loss for each row instead of their mean
# problem: level1/95
# ours: interface
# says: expected the shape ()
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, predictions, targets):
        return predictions.logsumexp(1) - predictions.gather(1, targets[:, None])[:, 0]
