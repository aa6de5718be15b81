# right: torch's convolutions, and Triton kernels for biases with rectifiers, joins and pools, one specialisation a shape
# problem: level3/18
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


@triton.jit
def place(x, bias, y, total, channels, first, HW: tl.constexpr, ALL: tl.constexpr, RELU: tl.constexpr,
          BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < total
    channel = at // HW % channels
    image = at // HW // channels
    v = tl.load(x + at, mask=mask, other=0.0) + tl.load(bias + channel, mask=mask, other=0.0)
    if RELU:
        v = tl.maximum(v, 0.0)
    tl.store(y + (image * ALL + first + channel) * HW + at % HW, v, mask=mask)


def joined(parts, relu):
    batch, _, height, width = parts[0][0].shape
    channels = sum(x.shape[1] for x, _ in parts)
    y = torch.empty((batch, channels, height, width), device=parts[0][0].device, dtype=parts[0][0].dtype)
    first = 0
    for x, bias in parts:
        x = x.contiguous()
        place[(triton.cdiv(x.numel(), 1024),)](x, bias, y, x.numel(), x.shape[1], first, HW=height * width, ALL=channels,
                                               RELU=relu, BLOCK=1024)
        first += x.shape[1]
    return y


@triton.jit
def area_mean(x, y, HW: tl.constexpr, BLOCK: tl.constexpr):
    plane = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    v = tl.load(x + plane * HW + at, mask=at < HW, other=0.0)
    tl.store(y + plane, tl.sum(v, axis=0) / HW)


def mean_of_planes(x):
    x = x.contiguous()
    area = x.shape[2] * x.shape[3]
    y = torch.empty(x.shape[:2], device=x.device, dtype=x.dtype)
    area_mean[(y.numel(),)](x, y, HW=area, BLOCK=triton.next_power_of_2(area))
    return y


def convolved(conv, x):
    return F.conv2d(x, conv.weight, None, conv.stride, conv.padding, conv.dilation, conv.groups)


class FireModule(nn.Module):
    def __init__(self, in_channels, squeeze_channels, expand1x1_channels, expand3x3_channels):
        super(FireModule, self).__init__()

        self.squeeze = nn.Conv2d(in_channels, squeeze_channels, kernel_size=1)
        self.squeeze_activation = nn.ReLU(inplace=True)

        self.expand1x1 = nn.Conv2d(squeeze_channels, expand1x1_channels, kernel_size=1)
        self.expand1x1_activation = nn.ReLU(inplace=True)

        self.expand3x3 = nn.Conv2d(squeeze_channels, expand3x3_channels, kernel_size=3, padding=1)
        self.expand3x3_activation = nn.ReLU(inplace=True)

    def forward(self, x):
        x = add_bias(convolved(self.squeeze, x), self.squeeze.bias)
        return joined([(convolved(self.expand1x1, x), self.expand1x1.bias),
                       (convolved(self.expand3x3, x), self.expand3x3.bias)], relu=True)


class ModelNew(nn.Module):
    def __init__(self, num_classes=1000):
        super().__init__()

        self.features = nn.Sequential(
            nn.Conv2d(3, 96, kernel_size=7, stride=2),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(kernel_size=3, stride=2, ceil_mode=True),
            FireModule(96, 16, 64, 64),
            FireModule(128, 16, 64, 64),
            FireModule(128, 32, 128, 128),
            nn.MaxPool2d(kernel_size=3, stride=2, ceil_mode=True),
            FireModule(256, 32, 128, 128),
            FireModule(256, 48, 192, 192),
            FireModule(384, 48, 192, 192),
            FireModule(384, 64, 256, 256),
            nn.MaxPool2d(kernel_size=3, stride=2, ceil_mode=True),
            FireModule(512, 64, 256, 256),
        )

        self.classifier = nn.Sequential(
            nn.Dropout(p=0.0),
            nn.Conv2d(512, num_classes, kernel_size=1),
            nn.ReLU(inplace=True),
            nn.AdaptiveAvgPool2d((1, 1))
        )

    @torch.no_grad()
    def forward(self, x):
        for layer in self.features:
            if isinstance(layer, nn.Conv2d):
                x = add_bias(convolved(layer, x), layer.bias)
            elif isinstance(layer, nn.MaxPool2d):
                x = max_pool(x, 3, 2, ceil=True)
            elif isinstance(layer, FireModule):
                x = layer(x)
        last = self.classifier[1]
        return mean_of_planes(add_bias(convolved(last, x), last.bias))
