# right: torch's convolutions and products without their biases, and a Triton specialisation for each shape of bias, rectifier and pool
# problem: level3/11
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

        # VGG16 architecture: 5 blocks of convolutional layers followed by max pooling
        self.features = nn.Sequential(
            # Block 1
            nn.Conv2d(3, 64, kernel_size=3, padding=1),
            nn.ReLU(inplace=True),
            nn.Conv2d(64, 64, kernel_size=3, padding=1),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(kernel_size=2, stride=2),

            # Block 2
            nn.Conv2d(64, 128, kernel_size=3, padding=1),
            nn.ReLU(inplace=True),
            nn.Conv2d(128, 128, kernel_size=3, padding=1),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(kernel_size=2, stride=2),

            # Block 3
            nn.Conv2d(128, 256, kernel_size=3, padding=1),
            nn.ReLU(inplace=True),
            nn.Conv2d(256, 256, kernel_size=3, padding=1),
            nn.ReLU(inplace=True),
            nn.Conv2d(256, 256, kernel_size=3, padding=1),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(kernel_size=2, stride=2),

            # Block 4
            nn.Conv2d(256, 512, kernel_size=3, padding=1),
            nn.ReLU(inplace=True),
            nn.Conv2d(512, 512, kernel_size=3, padding=1),
            nn.ReLU(inplace=True),
            nn.Conv2d(512, 512, kernel_size=3, padding=1),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(kernel_size=2, stride=2),

            # Block 5
            nn.Conv2d(512, 512, kernel_size=3, padding=1),
            nn.ReLU(inplace=True),
            nn.Conv2d(512, 512, kernel_size=3, padding=1),
            nn.ReLU(inplace=True),
            nn.Conv2d(512, 512, kernel_size=3, padding=1),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(kernel_size=2, stride=2)
        )

        # Fully connected layers
        self.classifier = nn.Sequential(
            nn.Linear(512 * 7 * 7, 4096),
            nn.ReLU(inplace=True),
            nn.Dropout(p=0.0),
            nn.Linear(4096, 4096),
            nn.ReLU(inplace=True),
            nn.Dropout(p=0.0),
            nn.Linear(4096, num_classes)
        )

    @torch.no_grad()
    def forward(self, x):
        for layer in self.features:
            if isinstance(layer, nn.Conv2d):
                x = add_bias(convolved(layer, x), layer.bias)
            elif isinstance(layer, nn.MaxPool2d):
                x = max_pool(x, 2, 2)
        x = torch.flatten(x, 1)
        last = len(self.classifier) - 1
        for at, layer in enumerate(self.classifier):
            if isinstance(layer, nn.Linear):
                x = add_bias(F.linear(x, layer.weight), layer.bias, relu=at < last)
        return x
