"""A linear layer and batch normalization in train mode: weights, and buffers that every call changes."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, inside, outside):
        super().__init__()
        self.linear = nn.Linear(inside, outside)
        self.norm = nn.BatchNorm1d(outside)

    def forward(self, x):
        return self.norm(self.linear(x))


def get_inputs():
    return [torch.rand(128, 64)]


def get_init_inputs():
    return [64, 96]
