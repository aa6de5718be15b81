# wrong: it raises: the weight is not transposed and the bias is added to the wrong side
# problem: level2/40
# ours: raised
# says: must match the size of tensor b or shapes cannot be multiplied or is invalid for input of size
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features, scaling_factor):
        super().__init__()
        self.matmul = nn.Linear(in_features, out_features)
        self.scaling_factor = scaling_factor

    def forward(self, x):
        y = x @ self.matmul.weight + self.matmul.bias[:-1]
        return y * (1 + self.scaling_factor)
