import torch
import torch.nn as nn
import torch.nn.functional as F
import triton
import triton.language as tl


@triton.jit
def pack_kernel(x_ptr, out_ptr):
    # Space to depth by 2: (64, 3, 512, 512) float -> (64, 256, 256, 16) half,
    # channel = (c * 2 + sy) * 2 + sx, the last four channels are zero.
    pid = tl.program_id(0)
    part = pid % 2
    by = (pid // 2) % 256
    n = pid // 512
    bx = part * 128 + tl.arange(0, 128)
    ch = tl.arange(0, 16)
    off = n * 786432 + (ch // 4) * 262144 + (2 * by + (ch // 2) % 2) * 512 + ch % 2
    ok = (ch < 12)[None, :] & (bx < 256)[:, None]
    v = tl.load(x_ptr + off[None, :] + (2 * bx)[:, None], mask=ok, other=0.0)
    dst = ((n * 256 + by) * 256 + bx)[:, None] * 16 + ch[None, :]
    tl.store(out_ptr + dst, v.to(tl.float16))


@triton.jit
def pool_kernel(x_ptr, b_ptr, out_ptr, H: tl.constexpr, W: tl.constexpr,
                OH: tl.constexpr, OW: tl.constexpr, C: tl.constexpr,
                BIAS: tl.constexpr, BLOCK: tl.constexpr):
    # 3x3 stride-2 max pooling, channels last. With BIAS the input comes before bias and ReLU
    # (both monotone, so they follow the maximum) and every window is full; without it the
    # input is not negative, and what lies outside counts as zero.
    idx = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    c = idx % C
    p = idx // C
    ox = p % OW
    q = p // OW
    oy = q % OH
    n = q // OH
    base = ((n * H + 2 * oy) * W + 2 * ox) * C + c
    m = tl.load(x_ptr + base)
    for dy in tl.static_range(3):
        for dx in tl.static_range(3):
            if BIAS:
                v = tl.load(x_ptr + base + (dy * W + dx) * C)
            else:
                ok = ((2 * oy + dy) < H) & ((2 * ox + dx) < W)
                v = tl.load(x_ptr + base + (dy * W + dx) * C, mask=ok, other=0.0)
            m = tl.maximum(m, v)
    if BIAS:
        r = m.to(tl.float32) + tl.load(b_ptr + c)
        r = tl.maximum(r, 0.0)
        tl.store(out_ptr + idx, r.to(tl.float16))
    else:
        tl.store(out_ptr + idx, m)


@triton.jit
def squeeze_kernel(x_ptr, w_ptr, b_ptr, out_ptr, P: tl.constexpr, C: tl.constexpr,
                   S: tl.constexpr, BM: tl.constexpr, BK: tl.constexpr):
    # relu(x @ w + b) over pixels, channels last.
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    live = rows < P
    ks = tl.arange(0, BK)
    ns = tl.arange(0, S)
    acc = tl.zeros((BM, S), dtype=tl.float32)
    for k in range(0, C, BK):
        a = tl.load(x_ptr + rows[:, None] * C + (k + ks)[None, :], mask=live[:, None], other=0.0)
        b = tl.load(w_ptr + (k + ks)[:, None] * S + ns[None, :])
        acc = tl.dot(a, b, acc)
    acc = tl.maximum(acc + tl.load(b_ptr + ns)[None, :], 0.0)
    tl.store(out_ptr + rows[:, None] * S + ns[None, :], acc.to(tl.float16), mask=live[:, None])


@triton.jit
def expand_kernel(sq_ptr, w_ptr, b_ptr, out_ptr, P: tl.constexpr, H: tl.constexpr,
                  W: tl.constexpr, S: tl.constexpr, E: tl.constexpr,
                  BM: tl.constexpr, BN: tl.constexpr):
    # Both expansions of a fire module, each with bias and ReLU, written where the
    # concatenation has them. Weights: taps 0..8 of the 3x3, tap 9 is the 1x1.
    NT: tl.constexpr = E // BN
    pid_n = tl.program_id(0)
    rows = tl.program_id(1) * BM + tl.arange(0, BM)
    x = rows % W
    y = (rows // W) % H
    live = rows < P
    ks = tl.arange(0, S)
    is3 = pid_n < NT
    t0 = tl.where(is3, 0, 9)
    t1 = tl.where(is3, 9, 10)
    ncol = (pid_n % NT) * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for t in range(t0, t1):
        tap = tl.where(t == 9, 4, t)
        dy = tap // 3 - 1
        dx = tap % 3 - 1
        yy = y + dy
        xx = x + dx
        ok = live & (yy >= 0) & (yy < H) & (xx >= 0) & (xx < W)
        a = tl.load(sq_ptr + (rows + (dy * W + dx))[:, None] * S + ks[None, :],
                    mask=ok[:, None], other=0.0)
        b = tl.load(w_ptr + t * (S * E) + ks[:, None] * E + ncol[None, :])
        acc = tl.dot(a, b, acc)
    cols = ncol + tl.where(is3, E, 0)
    acc = tl.maximum(acc + tl.load(b_ptr + cols)[None, :], 0.0)
    tl.store(out_ptr + rows[:, None] * (2 * E) + cols[None, :], acc.to(tl.float16),
             mask=live[:, None])


@triton.jit
def classifier_kernel(x_ptr, w_ptr, b_ptr, part_ptr, HW: tl.constexpr, C: tl.constexpr,
                      NPAD: tl.constexpr, N: tl.constexpr, BM: tl.constexpr,
                      BN: tl.constexpr, BK: tl.constexpr):
    # 1x1 convolution, bias, ReLU and the sum over a tile of an image's pixels, over HW.
    cols = tl.program_id(0) * BN + tl.arange(0, BN)
    mt = tl.program_id(1)
    img = tl.program_id(2)
    r = mt * BM + tl.arange(0, BM)
    live = r < HW
    rows = img * HW + r
    ks = tl.arange(0, BK)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, C, BK):
        a = tl.load(x_ptr + rows[:, None] * C + (k + ks)[None, :], mask=live[:, None], other=0.0)
        b = tl.load(w_ptr + (k + ks)[:, None] * NPAD + cols[None, :])
        acc = tl.dot(a, b, acc)
    acc = tl.maximum(acc + tl.load(b_ptr + cols)[None, :], 0.0)
    acc = tl.where(live[:, None], acc, 0.0)
    s = tl.sum(acc, axis=0) * (1.0 / HW)
    tl.store(part_ptr + (img * tl.num_programs(1) + mt) * N + cols, s, mask=cols < N)


def _bits(t):
    # Half-precision weights are kept as their 16-bit patterns, so that a cast of the
    # module's floating-point buffers leaves them alone.
    return t.to(torch.float16).contiguous().view(torch.int16)


class FireModule(nn.Module):
    def __init__(self, in_channels, squeeze_channels, expand1x1_channels, expand3x3_channels):
        super(FireModule, self).__init__()
        self.squeeze = nn.Conv2d(in_channels, squeeze_channels, kernel_size=1)
        self.squeeze_activation = nn.ReLU(inplace=True)
        self.expand1x1 = nn.Conv2d(squeeze_channels, expand1x1_channels, kernel_size=1)
        self.expand1x1_activation = nn.ReLU(inplace=True)
        self.expand3x3 = nn.Conv2d(squeeze_channels, expand3x3_channels, kernel_size=3, padding=1)
        self.expand3x3_activation = nn.ReLU(inplace=True)

    def pack(self):
        with torch.no_grad():
            ws = self.squeeze.weight.detach()
            s, cin = ws.shape[0], ws.shape[1]
            sp = 64 if s == 48 else s
            e = self.expand1x1.weight.shape[0]
            self.cin, self.s, self.e = cin, sp, e
            wsq = torch.zeros(cin, sp, dtype=ws.dtype, device=ws.device)
            wsq[:, :s] = ws.reshape(s, cin).t()
            bsq = torch.zeros(sp, dtype=ws.dtype, device=ws.device)
            bsq[:s] = self.squeeze.bias.detach()
            wex = torch.zeros(10, sp, e, dtype=ws.dtype, device=ws.device)
            wex[:9, :s, :] = self.expand3x3.weight.detach().permute(2, 3, 1, 0).reshape(9, s, e)
            wex[9, :s, :] = self.expand1x1.weight.detach().reshape(e, s).t()
            bex = torch.cat([self.expand1x1.bias.detach(), self.expand3x3.bias.detach()])
            self.register_buffer("wsq", _bits(wsq))
            self.register_buffer("bsq", bsq)
            self.register_buffer("wex", _bits(wex))
            self.register_buffer("bex", bex)
        self.bk = 32 if cin == 96 else 64
        self.bn = 128 if e % 128 == 0 else 64

    def run(self, x, size):
        p = 64 * size * size
        sq = torch.empty((p, self.s), device=x.device, dtype=torch.float16)
        squeeze_kernel[(triton.cdiv(p, 128),)](
            x, self.wsq.view(torch.float16), self.bsq, sq,
            P=p, C=self.cin, S=self.s, BM=128, BK=self.bk, num_warps=4, num_stages=3)
        out = torch.empty((p, 2 * self.e), device=x.device, dtype=torch.float16)
        expand_kernel[(2 * self.e // self.bn, triton.cdiv(p, 128))](
            sq, self.wex.view(torch.float16), self.bex, out,
            P=p, H=size, W=size, S=self.s, E=self.e, BM=128, BN=self.bn,
            num_warps=8 if self.bn == 128 else 4, num_stages=3)
        return out


class ModelNew(nn.Module):
    def __init__(self, num_classes=1000):
        super(ModelNew, self).__init__()
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
            nn.AdaptiveAvgPool2d((1, 1)),
        )
        self.num_classes = num_classes
        with torch.no_grad():
            # 7x7 stride 2 over 3 channels becomes 4x4 stride 1 over 12 (padded to 16) channels.
            w = F.pad(self.features[0].weight.detach(), (0, 1, 0, 1))
            w = w.view(96, 3, 4, 2, 4, 2).permute(0, 2, 4, 1, 3, 5).reshape(96, 4, 4, 12)
            w = F.pad(w, (0, 4))
            self.register_buffer("w_first", _bits(w))
            wc = self.classifier[1].weight.detach().reshape(num_classes, 512).t()
            wc = F.pad(wc, (0, 1024 - num_classes))
            self.register_buffer("w_last", _bits(wc))
            self.register_buffer("b_last", F.pad(self.classifier[1].bias.detach(),
                                                 (0, 1024 - num_classes)))
        for i in (3, 4, 5, 7, 8, 9, 10, 12):
            self.features[i].pack()

    def _pool(self, x, bias, h, oh, c, with_bias):
        out = torch.empty((64 * oh * oh, c), device=x.device, dtype=torch.float16)
        pool_kernel[(64 * oh * oh * c // 1024,)](
            x, bias, out, H=h, W=h, OH=oh, OW=oh, C=c, BIAS=with_bias, BLOCK=1024, num_warps=4)
        return out

    @torch.no_grad()
    def forward(self, x):
        x = x.contiguous()
        f = self.features
        packed = torch.empty((64, 256, 256, 16), device=x.device, dtype=torch.float16)
        pack_kernel[(64 * 256 * 2,)](x, packed, num_warps=4)

        before = torch.backends.cudnn.benchmark
        torch.backends.cudnn.benchmark = True
        try:
            y = F.conv2d(packed.permute(0, 3, 1, 2),
                         self.w_first.view(torch.float16).permute(0, 3, 1, 2))
        finally:
            torch.backends.cudnn.benchmark = before
        y = y.contiguous(memory_format=torch.channels_last)

        b0 = f[0].bias
        a = self._pool(y, b0, 253, 126, 96, True)
        a = f[3].run(a, 126)
        a = f[4].run(a, 126)
        a = f[5].run(a, 126)
        a = self._pool(a, b0, 126, 63, 256, False)
        a = f[7].run(a, 63)
        a = f[8].run(a, 63)
        a = f[9].run(a, 63)
        a = f[10].run(a, 63)
        a = self._pool(a, b0, 63, 31, 512, False)
        a = f[12].run(a, 31)

        part = torch.empty((64, 8, self.num_classes), device=x.device, dtype=torch.float32)
        classifier_kernel[(8, 8, 64)](
            a, self.w_last.view(torch.float16), self.b_last, part,
            HW=961, C=512, NPAD=1024, N=self.num_classes, BM=128, BN=128, BK=64,
            num_warps=8, num_stages=3)
        return part.sum(dim=1)
