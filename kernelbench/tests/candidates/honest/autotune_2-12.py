# right: a Triton product in three TF32 parts with bias, factor and leaky rectifier in its end, tuned over ten configurations
# problem: level2/12
# ours: passed
import torch
import torch.nn as nn
import triton
import triton.language as tl


def config(m, n, k, warps, stages):
    return triton.Config({"BM": m, "BN": n, "BK": k}, num_warps=warps, num_stages=stages)


@triton.autotune(
    configs=[
        config(64, 64, 32, 4, 2), config(64, 64, 32, 4, 3), config(128, 64, 32, 4, 2), config(128, 64, 32, 4, 3),
        config(64, 128, 32, 4, 2), config(64, 128, 32, 4, 3), config(128, 128, 32, 8, 2), config(128, 128, 32, 8, 3),
        config(128, 128, 16, 8, 3), config(64, 64, 16, 4, 4),
    ],
    key=["M", "N", "K"],
)
@triton.jit
def product(x, weight, bias, y, multiplier, slope, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), tl.float32)
    for k0 in range(0, K, BK):
        k = k0 + tl.arange(0, BK)
        left = tl.load(x + rows[:, None] * K + k[None, :], mask=(rows[:, None] < M) & (k[None, :] < K), other=0.0)
        right = tl.load(weight + columns[None, :] * K + k[:, None], mask=(k[:, None] < K) & (columns[None, :] < N), other=0.0)
        acc = tl.dot(left, right, acc, input_precision="tf32x3")
    v = (acc + tl.load(bias + columns, mask=columns < N, other=0.0)[None, :]) * multiplier
    v = tl.where(v > 0, v, v * slope)
    tl.store(y + rows[:, None] * N + columns[None, :], v, mask=(rows[:, None] < M) & (columns[None, :] < N))


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features, multiplier, negative_slope):
        super().__init__()
        self.gemm = nn.Linear(in_features, out_features)
        self.multiplier = float(multiplier)
        self.leaky_relu = nn.LeakyReLU(negative_slope)

    @torch.no_grad()
    def forward(self, x):
        x = x.contiguous()
        M, K = x.shape
        N = self.gemm.out_features
        y = torch.empty((M, N), device=x.device, dtype=x.dtype)
        product[lambda meta: (triton.cdiv(M, meta["BM"]), triton.cdiv(N, meta["BN"]))](
            x, self.gemm.weight, self.gemm.bias, y, self.multiplier, float(self.leaky_relu.negative_slope), M, N, K)
        return y
