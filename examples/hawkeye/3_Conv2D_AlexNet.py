"""The first convolution of AlexNet, 256 images (Hawkeye, section 4.1)."""

import torch
import torch.nn as nn

batch = 256
operations = 2 * batch * 55 * 55 * 96 * 3 * 11 * 11  # as the paper counts them (G.2)


class Model(nn.Module):
    def __init__(self, channels, filters, kernel, stride, padding):
        super().__init__()
        self.conv = nn.Conv2d(channels, filters, kernel, stride=stride, padding=padding)

    def forward(self, x):
        return self.conv(x)


def get_inputs():
    return [torch.randn(batch, 3, 224, 224)]


def get_init_inputs():
    return [3, 96, 11, 4, 2]
