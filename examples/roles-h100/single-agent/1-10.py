import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def split_kernel(src, hi, lo, BLOCK: tl.constexpr):
    # x = hi + lo, both FP16: 22 bits of mantissa together.
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(src + offs)
    h = v.to(tl.float16)
    l = (v - h.to(tl.float32)).to(tl.float16)
    tl.store(hi + offs, h)
    tl.store(lo + offs, l)


@triton.jit
def matmul_kernel(a_ptr, bh_ptr, bl_ptr, c_ptr,
                  N: tl.constexpr, K: tl.constexpr,
                  BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    # Blocks that share rows of A are neighbours, so that A comes from device memory once.
    pid = tl.program_id(0)
    TILES_N: tl.constexpr = N // BN
    pid_m = pid // TILES_N
    pid_n = pid % TILES_N

    offs_m = pid_m * BM + tl.arange(0, BM)
    offs_n = pid_n * BN + tl.arange(0, BN)
    offs_k = tl.arange(0, BK)

    a_ptrs = a_ptr + offs_m[:, None] * K + offs_k[None, :]
    b_offs = offs_k[:, None] * N + offs_n[None, :]
    bh_ptrs = bh_ptr + b_offs
    bl_ptrs = bl_ptr + b_offs

    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        a = tl.load(a_ptrs)
        bh = tl.load(bh_ptrs)
        bl = tl.load(bl_ptrs)
        # A is split on the fly, in registers.
        ah = a.to(tl.float16)
        al = (a - ah.to(tl.float32)).to(tl.float16)
        acc = tl.dot(al, bh, acc)
        acc = tl.dot(ah, bl, acc)
        acc = tl.dot(ah, bh, acc)
        a_ptrs += BK
        bh_ptrs += BK * N
        bl_ptrs += BK * N

    c_ptrs = c_ptr + offs_m[:, None] * N + offs_n[None, :]
    tl.store(c_ptrs, acc)


class ModelNew(nn.Module):
    """
    Performs 3D tensor-matrix multiplication on FP16 tensor cores:
    each operand in two FP16 parts, three products, accumulated in FP32.
    """
    def __init__(self):
        super(ModelNew, self).__init__()

    def forward(self, A, B):
        batch, rows, K = A.shape
        N = B.shape[1]
        M = batch * rows
        parts = torch.empty((2, K, N), dtype=torch.float16, device=B.device)
        bh = parts[0]
        bl = parts[1]
        C = torch.empty((batch, rows, N), dtype=torch.float32, device=A.device)
        split_kernel[((K * N) // 2048,)](B, bh, bl, BLOCK=2048, num_warps=8)
        matmul_kernel[((M // 128) * (N // 256),)](
            A, bh, bl, C,
            N=N, K=K, BM=128, BN=256, BK=32,
            num_warps=8, num_stages=4,
        )
        return C
