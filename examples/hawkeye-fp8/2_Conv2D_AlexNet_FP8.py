"""The first convolution of AlexNet, 256 images, images and weights in eight bits (E4M3) (Hawkeye, section 4.1)."""

import torch
import torch.nn as nn

batch = 256
operations = 2 * batch * 55 * 55 * 96 * 3 * 11 * 11  # as the paper counts them (G.2)


class Model(nn.Module):
    """The weights are held in a wider type, and each is a number of E4M3."""

    def __init__(self, channels, filters, kernel, stride, padding):
        super().__init__()
        self.conv = nn.Conv2d(channels, filters, kernel, stride=stride, padding=padding)
        with torch.no_grad():
            self.conv.weight.copy_(self.conv.weight.to(torch.float8_e4m3fn))

    def forward(self, x):
        return self.conv(x.to(self.conv.weight.dtype))


def get_inputs():
    return [torch.randn(batch, 3, 224, 224).to(torch.float8_e4m3fn)]


def get_init_inputs():
    return [3, 96, 11, 4, 2]
