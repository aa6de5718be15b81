"""What does a tolerance of 0.1 let pass in Hawkeye's attentions in eight bits? One head of 4,096 x 64 in single precision on the
processor; the share of elements that the rule calls wrong where something is left out. torch with float8_e4m3fn."""

import torch
import torch.nn.functional as F

LENGTH, WIDTH = 4096, 64


def rounded(tensor):
    return tensor.to(torch.float8_e4m3fn).float()


def wrong(right, got):
    return ((got - right).abs() > 0.1 + 0.1 * right.abs()).float().mean().item()


def near(keys):
    every = torch.ones(LENGTH, LENGTH, dtype=torch.bool)
    return every.tril() & ~every.tril(-keys)


def softmax(q, k, v, mask, bias=0.0, in_eight_bits=False):
    scores = (q @ k.T * WIDTH**-0.5 + bias).masked_fill(~mask, float("-inf"))
    weights = torch.exp(scores - scores.max(-1, keepdim=True).values)
    return (rounded(weights) if in_eight_bits else weights) @ v / weights.sum(-1, keepdim=True)


def linear(q, k, v, mask, square=1.0, in_eight_bits=False):
    s = q @ k.T * WIDTH**-0.5
    weights = (1 + s + square * s * s / 2) * mask
    return (rounded(weights) if in_eight_bits else weights) @ v / weights.sum(-1, keepdim=True)


def told(name, right, **others):
    shares = {"nothing put out": wrong(right, 0 * right)}
    shares.update({what.replace("_", " "): wrong(right, got) for what, got in others.items()})
    print(name, {what: f"{share:.2%}" for what, share in shares.items()})


for seed in range(2):
    torch.manual_seed(seed)
    normal = lambda: torch.randn(LENGTH, WIDTH)  # noqa: E731
    every = near(LENGTH)
    gate = F.logsigmoid(torch.randn(LENGTH) + 4).cumsum(0)
    gate = gate[:, None] - gate[None, :]
    for times in (1, 4):
        q, k, v = rounded(times * normal()), rounded(normal()), rounded(normal())
        told(
            f"attention, queries times {times}", softmax(q, k, v, every),
            keys_beyond_1024_left_out=softmax(q, k, v, near(1024)), weights_in_E4M3=softmax(q, k, v, every, 0.0, True),
        )
        told(
            f"forgetting attention, queries times {times}", softmax(q, k, v, every, gate),
            no_gate=softmax(q, k, v, every), keys_beyond_128_left_out=softmax(q, k, v, near(128), gate),
            weights_in_E4M3=softmax(q, k, v, every, gate, True),
        )
    q, k, noise = rounded(normal()), rounded(normal()), normal()
    for name, v in (("", rounded(noise)), (", values along with keys", rounded(2 * k + noise / 2))):
        told(
            f"linear attention{name}", linear(q, k, v, every), keys_beyond_1024_left_out=linear(q, k, v, near(1024)),
            no_square=linear(q, k, v, every, 0.0), weights_in_E4M3=linear(q, k, v, every, 1.0, True),
        )
