# wrong: it has another element type: the result stays in half precision
# problem: level2/17
# ours: interface
# says: element type float32, got float16
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size, divide_by):
        super().__init__()
        self.conv = nn.Conv2d(in_channels, out_channels, kernel_size)
        self.instance_norm = nn.InstanceNorm2d(out_channels)
        self.divide_by = divide_by

    def forward(self, x):
        return (self.instance_norm(self.conv(x)) / self.divide_by).half()
