# right: residual and norm in one Triton kernel, attention over two tokens by torch, the whole replayed as a CUDA graph
# problem: level3/32
# ours: passed
import torch
import torch.nn as nn
import torch.nn.functional as F
import triton
import triton.language as tl


@triton.jit
def add_and_normalise(x, residual, weight, bias, out, length, eps, BLOCK: tl.constexpr):
    start = tl.program_id(0) * length
    lanes = tl.arange(0, BLOCK)
    mask = lanes < length
    v = tl.load(x + start + lanes, mask=mask, other=0.0) + tl.load(residual + start + lanes, mask=mask, other=0.0)
    mean = tl.sum(v, 0) / length
    off = tl.where(mask, v - mean, 0.0)
    v = off / tl.sqrt(tl.sum(off * off, 0) / length + eps)
    v = v * tl.load(weight + lanes, mask=mask) + tl.load(bias + lanes, mask=mask)
    tl.store(out + start + lanes, v, mask=mask)


def normalised_sum(x, residual, norm):
    x, residual = x.contiguous(), residual.contiguous()
    out = torch.empty_like(x)
    length = x.shape[-1]
    block = triton.next_power_of_2(length)
    add_and_normalise[(x.numel() // length,)](x, residual, norm.weight, norm.bias, out, length, norm.eps, BLOCK=block)
    return out


class ModelNew(nn.Module):
    def __init__(self, num_classes, embed_dim=512, num_heads=8, num_layers=6, mlp_ratio=4.0, patch_size=4, in_channels=3, image_size=32):
        super().__init__()
        self.conv1 = nn.Conv2d(in_channels, embed_dim, kernel_size=patch_size, stride=patch_size)
        self.linear_proj = nn.Linear(embed_dim * (image_size // patch_size) ** 2, embed_dim)
        self.transformer_layers = nn.ModuleList(
            nn.TransformerEncoderLayer(embed_dim, num_heads, int(embed_dim * mlp_ratio), dropout=0.0, batch_first=True)
            for _ in range(num_layers)
        )
        self.cls_token = nn.Parameter(torch.zeros(1, 1, embed_dim))
        self.fc_out = nn.Linear(embed_dim, num_classes)
        self.heads = num_heads
        self.graph = None

    def attend(self, x, attention):
        batch, tokens, width = x.shape
        packed = F.linear(x, attention.in_proj_weight, attention.in_proj_bias)
        split = packed.view(batch, tokens, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        q, k, v = split[0], split[1], split[2]
        chances = (q @ k.transpose(-2, -1) * (width // self.heads) ** -0.5).softmax(-1)
        mixed = (chances @ v).transpose(1, 2).reshape(batch, tokens, width)
        return F.linear(mixed, attention.out_proj.weight, attention.out_proj.bias)

    def compute(self, x):
        x = self.linear_proj(self.conv1(x).flatten(1))
        x = torch.cat((self.cls_token.expand(len(x), -1, -1), x[:, None]), 1)
        for layer in self.transformer_layers:
            x = normalised_sum(self.attend(x, layer.self_attn), x, layer.norm1)
            x = normalised_sum(layer.linear2(F.relu_(layer.linear1(x))), x, layer.norm2)
        return self.fc_out(x[:, 0])

    def forward(self, x):
        if not x.is_cuda:
            return self.compute(x)
        if self.graph is None or self.given.shape != x.shape:
            self.given = x.clone()
            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                for _ in range(3):
                    self.compute(self.given)
            torch.cuda.current_stream().wait_stream(side)
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph):
                self.result = self.compute(self.given)
        self.given.copy_(x)
        self.graph.replay()
        return self.result.clone()
