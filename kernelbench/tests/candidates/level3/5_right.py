# right: torch's convolutions and products, and one Triton kernel for each rectifier with the pooling after it
# problem: level3/5
# ours: passed
import torch
import torch.nn as nn
import torch.nn.functional as F
import triton
import triton.language as tl


@triton.jit
def pooled(x, y, height, width, out_height, out_width, BLOCK: tl.constexpr):
    plane = tl.program_id(0).to(tl.int64)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = at < out_height * out_width
    corner = x + plane * height * width + (at // out_width * 2) * width + at % out_width * 2
    most = tl.zeros((BLOCK,), tl.float32)
    for row in tl.static_range(3):
        for column in tl.static_range(3):
            most = tl.maximum(most, tl.load(corner + row * width + column, mask=mask, other=0.0))
    tl.store(y + plane * out_height * out_width + at, most, mask=mask)


def rectify_and_pool(x):
    x = x.contiguous()
    batch, channels, height, width = x.shape
    out_height, out_width = (height - 3) // 2 + 1, (width - 3) // 2 + 1
    y = torch.empty((batch, channels, out_height, out_width), device=x.device)
    grid = (batch * channels, triton.cdiv(out_height * out_width, 256))
    pooled[grid](x, y, height, width, out_height, out_width, BLOCK=256)
    return y


class ModelNew(nn.Module):
    def __init__(self, num_classes=1000):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 96, kernel_size=11, stride=4, padding=2)
        self.conv2 = nn.Conv2d(96, 256, kernel_size=5, padding=2)
        self.conv3 = nn.Conv2d(256, 384, kernel_size=3, padding=1)
        self.conv4 = nn.Conv2d(384, 384, kernel_size=3, padding=1)
        self.conv5 = nn.Conv2d(384, 256, kernel_size=3, padding=1)
        self.fc1 = nn.Linear(256 * 6 * 6, 4096)
        self.fc2 = nn.Linear(4096, 4096)
        self.fc3 = nn.Linear(4096, num_classes)

    def forward(self, x):
        x = rectify_and_pool(self.conv1(x))
        x = rectify_and_pool(self.conv2(x))
        x = F.relu_(self.conv3(x))
        x = F.relu_(self.conv4(x))
        x = rectify_and_pool(self.conv5(x))
        x = F.relu_(self.fc1(x.flatten(1)))
        return self.fc3(F.relu_(self.fc2(x)))
