# right: torch's convolutions, and Triton kernels for products, biases, rectifiers and pools, one specialisation a layer
# problem: level3/4
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
def product(x, weight, y, M, N: tl.constexpr, K: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), tl.float32)
    for k0 in range(0, K, BK):
        k = k0 + tl.arange(0, BK)
        a = tl.load(x + rows[:, None] * K + k[None, :], mask=(rows[:, None] < M) & (k[None, :] < K), other=0.0)
        b = tl.load(weight + columns[None, :] * K + k[:, None], mask=(columns[None, :] < N) & (k[:, None] < K), other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
    tl.store(y + rows[:, None] * N + columns[None, :], acc, mask=(rows[:, None] < M) & (columns[None, :] < N))


def multiplied(linear, x):
    x = x.contiguous()
    y = torch.empty((x.shape[0], linear.out_features), device=x.device, dtype=x.dtype)
    product[(triton.cdiv(x.shape[0], 64), triton.cdiv(linear.out_features, 32))](
        x, linear.weight, y, x.shape[0], N=linear.out_features, K=linear.in_features, BM=64, BN=32, BK=16)
    return y


def convolved(conv, x):
    return F.conv2d(x, conv.weight, None, conv.stride, conv.padding, conv.dilation, conv.groups)


class ModelNew(nn.Module):
    def __init__(self, num_classes):
        super().__init__()

        # Convolutional layers
        self.conv1 = nn.Conv2d(in_channels=1, out_channels=6, kernel_size=5, stride=1)
        self.conv2 = nn.Conv2d(in_channels=6, out_channels=16, kernel_size=5, stride=1)

        # Fully connected layers
        self.fc1 = nn.Linear(in_features=16*5*5, out_features=120)
        self.fc2 = nn.Linear(in_features=120, out_features=84)
        self.fc3 = nn.Linear(in_features=84, out_features=num_classes)

    @torch.no_grad()
    def forward(self, x):
        x = max_pool(add_bias(convolved(self.conv1, x), self.conv1.bias, relu=False), 2, 2, relu=True)
        x = max_pool(add_bias(convolved(self.conv2, x), self.conv2.bias), 2, 2)
        x = x.view(-1, 16 * 5 * 5)
        x = add_bias(multiplied(self.fc1, x), self.fc1.bias)
        x = add_bias(multiplied(self.fc2, x), self.fc2.bias)
        return add_bias(multiplied(self.fc3, x), self.fc3.bias, relu=False)
