# right: a Triton fp32 product (input_precision ieee), tuned over eight configurations at the first call
# problem: level1/1
# ours: passed
import torch
import torch.nn as nn
import triton
import triton.language as tl


def config(m, n, k, warps, stages):
    return triton.Config({"BM": m, "BN": n, "BK": k}, num_warps=warps, num_stages=stages)


@triton.autotune(
    configs=[
        config(64, 64, 16, 4, 2), config(64, 64, 16, 8, 3), config(128, 64, 16, 4, 2), config(128, 64, 16, 8, 3),
        config(64, 128, 16, 8, 2), config(128, 128, 16, 8, 2), config(128, 128, 16, 8, 3), config(32, 64, 32, 4, 2),
    ],
    key=["M", "N", "K"],
)
@triton.jit
def product(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rows = tl.program_id(1) * BM + tl.arange(0, BM)
    columns = tl.program_id(0) * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), tl.float32)
    for k0 in range(0, K, BK):
        k = k0 + tl.arange(0, BK)
        left = tl.load(a + rows[:, None] * K + k[None, :], mask=(rows[:, None] < M) & (k[None, :] < K), other=0.0)
        right = tl.load(b + k[:, None] * N + columns[None, :], mask=(k[:, None] < K) & (columns[None, :] < N), other=0.0)
        acc = tl.dot(left, right, acc, input_precision="ieee")
    tl.store(c + rows[:, None] * N + columns[None, :], acc, mask=(rows[:, None] < M) & (columns[None, :] < N))


class ModelNew(nn.Module):
    def forward(self, A, B):
        A, B = A.contiguous(), B.contiguous()
        M, K = A.shape
        N = B.shape[1]
        C = torch.empty((M, N), device=A.device, dtype=A.dtype)
        product[lambda meta: (triton.cdiv(N, meta["BN"]), triton.cdiv(M, meta["BM"]))](A, B, C, M, N, K)
        return C
