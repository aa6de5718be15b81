# right: torch's convolutions and products without their biases, Triton for biases, rectifiers and pools, one specialisation a shape
# problem: level3/5
# ours: passed
import torch
import torch.nn as nn
import torch.nn.functional as F
import triton
import triton.language as tl


@triton.jit
def bias_act(x, bias, total, C: tl.constexpr, HW: tl.constexpr, RELU: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < total
    v = tl.load(x + at, mask=mask, other=0.0) + tl.load(bias + at // HW % C, mask=mask, other=0.0)
    if RELU:
        v = tl.maximum(v, 0.0)
    tl.store(x + at, v, mask=mask)


def add_bias(x, bias, relu=True):
    x = x.contiguous()
    channels, area = x.shape[1], x.numel() // (x.shape[0] * x.shape[1])
    bias_act[(triton.cdiv(x.numel(), 1024),)](x, bias, x.numel(), C=channels, HW=area, RELU=relu, BLOCK=1024)
    return x


@triton.jit
def pooled(x, y, total, H: tl.constexpr, W: tl.constexpr, OH: tl.constexpr, OW: tl.constexpr, K: tl.constexpr,
           S: tl.constexpr, P: tl.constexpr, RELU: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < total
    plane = at // (OH * OW)
    row = at // OW % OH * S - P
    column = at % OW * S - P
    most = tl.full((BLOCK,), float("-inf"), tl.float32)
    for i in tl.static_range(K):
        for j in tl.static_range(K):
            h = row + i
            w = column + j
            inside = mask & (h >= 0) & (h < H) & (w >= 0) & (w < W)
            most = tl.maximum(most, tl.load(x + plane * (H * W) + h * W + w, mask=inside, other=float("-inf")))
    if RELU:
        most = tl.maximum(most, 0.0)
    tl.store(y + at, most, mask=mask)


def max_pool(x, kernel, stride, padding=0, relu=False, ceil=False):
    x = x.contiguous()
    batch, channels, height, width = x.shape
    more = stride - 1 if ceil else 0
    out_height = (height + 2 * padding - kernel + more) // stride + 1
    out_width = (width + 2 * padding - kernel + more) // stride + 1
    y = torch.empty((batch, channels, out_height, out_width), device=x.device, dtype=x.dtype)
    pooled[(triton.cdiv(y.numel(), 512),)](x, y, y.numel(), H=height, W=width, OH=out_height, OW=out_width, K=kernel,
                                           S=stride, P=padding, RELU=relu, BLOCK=512)
    return y


def convolved(conv, x):
    return F.conv2d(x, conv.weight, None, conv.stride, conv.padding, conv.dilation, conv.groups)


class ModelNew(nn.Module):
    def __init__(self, num_classes=1000):
        super().__init__()

        # First convolutional layer
        self.conv1 = nn.Conv2d(in_channels=3, out_channels=96, kernel_size=11, stride=4, padding=2)
        self.relu1 = nn.ReLU(inplace=True)
        self.maxpool1 = nn.MaxPool2d(kernel_size=3, stride=2)

        # Second convolutional layer
        self.conv2 = nn.Conv2d(in_channels=96, out_channels=256, kernel_size=5, padding=2)
        self.relu2 = nn.ReLU(inplace=True)
        self.maxpool2 = nn.MaxPool2d(kernel_size=3, stride=2)

        # Third convolutional layer
        self.conv3 = nn.Conv2d(in_channels=256, out_channels=384, kernel_size=3, padding=1)
        self.relu3 = nn.ReLU(inplace=True)

        # Fourth convolutional layer
        self.conv4 = nn.Conv2d(in_channels=384, out_channels=384, kernel_size=3, padding=1)
        self.relu4 = nn.ReLU(inplace=True)

        # Fifth convolutional layer
        self.conv5 = nn.Conv2d(in_channels=384, out_channels=256, kernel_size=3, padding=1)
        self.relu5 = nn.ReLU(inplace=True)
        self.maxpool3 = nn.MaxPool2d(kernel_size=3, stride=2)

        # Fully connected layers
        self.fc1 = nn.Linear(in_features=256 * 6 * 6, out_features=4096)
        self.relu6 = nn.ReLU(inplace=True)
        self.dropout1 = nn.Dropout(p=0.0)

        self.fc2 = nn.Linear(in_features=4096, out_features=4096)
        self.relu7 = nn.ReLU(inplace=True)
        self.dropout2 = nn.Dropout(p=0.0)

        self.fc3 = nn.Linear(in_features=4096, out_features=num_classes)

    @torch.no_grad()
    def forward(self, x):
        x = max_pool(add_bias(convolved(self.conv1, x), self.conv1.bias), 3, 2)
        x = max_pool(add_bias(convolved(self.conv2, x), self.conv2.bias), 3, 2)
        x = add_bias(convolved(self.conv3, x), self.conv3.bias)
        x = add_bias(convolved(self.conv4, x), self.conv4.bias)
        x = max_pool(add_bias(convolved(self.conv5, x), self.conv5.bias), 3, 2)
        x = torch.flatten(x, 1)
        x = add_bias(F.linear(x, self.fc1.weight), self.fc1.bias)
        x = add_bias(F.linear(x, self.fc2.weight), self.fc2.bias)
        return add_bias(F.linear(x, self.fc3.weight), self.fc3.bias, relu=False)
