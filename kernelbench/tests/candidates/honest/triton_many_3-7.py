# right: torch's convolutions, and Triton kernels for pools, joins of the branches and the mean, one specialisation a shape
# problem: level3/7
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


class InceptionModule(nn.Module):
    def __init__(self, in_channels, out_1x1, reduce_3x3, out_3x3, reduce_5x5, out_5x5, pool_proj):
        super(InceptionModule, self).__init__()

        # 1x1 convolution branch
        self.branch1x1 = nn.Conv2d(in_channels, out_1x1, kernel_size=1)

        # 3x3 convolution branch
        self.branch3x3 = nn.Sequential(
            nn.Conv2d(in_channels, reduce_3x3, kernel_size=1),
            nn.Conv2d(reduce_3x3, out_3x3, kernel_size=3, padding=1)
        )

        # 5x5 convolution branch
        self.branch5x5 = nn.Sequential(
            nn.Conv2d(in_channels, reduce_5x5, kernel_size=1),
            nn.Conv2d(reduce_5x5, out_5x5, kernel_size=5, padding=2)
        )

        # Max pooling branch
        self.branch_pool = nn.Sequential(
            nn.MaxPool2d(kernel_size=3, stride=1, padding=1),
            nn.Conv2d(in_channels, pool_proj, kernel_size=1)
        )

    def forward(self, x):
        parts = [
            (self.branch1x1, x),
            (self.branch3x3[1], self.branch3x3[0](x)),
            (self.branch5x5[1], self.branch5x5[0](x)),
            (self.branch_pool[1], max_pool(x, 3, 1, padding=1)),
        ]
        return joined([(convolved(conv, of), conv.bias) for conv, of in parts], relu=False)


class ModelNew(nn.Module):
    def __init__(self, num_classes=1000):
        super().__init__()

        self.conv1 = nn.Conv2d(3, 64, kernel_size=7, stride=2, padding=3)
        self.maxpool1 = nn.MaxPool2d(3, stride=2, padding=1)
        self.conv2 = nn.Conv2d(64, 64, kernel_size=1)
        self.conv3 = nn.Conv2d(64, 192, kernel_size=3, padding=1)
        self.maxpool2 = nn.MaxPool2d(3, stride=2, padding=1)

        self.inception3a = InceptionModule(192, 64, 96, 128, 16, 32, 32)
        self.inception3b = InceptionModule(256, 128, 128, 192, 32, 96, 64)
        self.maxpool3 = nn.MaxPool2d(3, stride=2, padding=1)

        self.inception4a = InceptionModule(480, 192, 96, 208, 16, 48, 64)
        self.inception4b = InceptionModule(512, 160, 112, 224, 24, 64, 64)
        self.inception4c = InceptionModule(512, 128, 128, 256, 24, 64, 64)
        self.inception4d = InceptionModule(512, 112, 144, 288, 32, 64, 64)
        self.inception4e = InceptionModule(528, 256, 160, 320, 32, 128, 128)
        self.maxpool4 = nn.MaxPool2d(3, stride=2, padding=1)

        self.inception5a = InceptionModule(832, 256, 160, 320, 32, 128, 128)
        self.inception5b = InceptionModule(832, 384, 192, 384, 48, 128, 128)

        self.avgpool = nn.AdaptiveAvgPool2d((1, 1))
        self.dropout = nn.Dropout(0.0)
        self.fc = nn.Linear(1024, num_classes)

    @torch.no_grad()
    def forward(self, x):
        x = max_pool(self.conv1(x), 3, 2, padding=1, relu=True)
        x = add_bias(convolved(self.conv2, x), self.conv2.bias)
        x = max_pool(self.conv3(x), 3, 2, padding=1, relu=True)
        x = self.inception3b(self.inception3a(x))
        x = max_pool(x, 3, 2, padding=1)
        for module in (self.inception4a, self.inception4b, self.inception4c, self.inception4d, self.inception4e):
            x = module(x)
        x = max_pool(x, 3, 2, padding=1)
        x = self.inception5b(self.inception5a(x))
        return self.fc(mean_of_planes(x))
