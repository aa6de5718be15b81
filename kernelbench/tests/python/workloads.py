"""Hawkeye's workloads at small sizes, against what they are said to compute, position by position in double precision, and the
operations that they state: workloads.py FOLDER."""

import pathlib
import sys

import torch

FOLDER = pathlib.Path(sys.argv[1])
# HK-56: what the paper's formulas give at its sizes.
OPERATIONS = {"GEMM_4096": 137438953472, "GEMM_8192": 2 * 8192**3, "Conv2D_AlexNet": 53972582400, "DeltaNet": 137438953472}


def names_of(text):
    names = {}
    exec(text, names)
    return names


def rows(q, k, v, weight):
    """Each output as the mean of the values before it, weighed one pair at a time and divided by the sum."""
    out = torch.empty_like(v)
    for i in range(q.shape[0]):
        weights = torch.stack([weight(i, j, (q[i] @ k[j]) / q.shape[1] ** 0.5) for j in range(i + 1)])
        out[i] = weights @ v[: i + 1] / weights.sum()
    return out


def attention(q, k, v):
    return rows(q, k, v, lambda i, j, s: s.exp())


def linear(q, k, v):
    return rows(q, k, v, lambda i, j, s: 1 + s + s * s / 2)


def forgetting(q, k, v, log_forget):
    return rows(q, k, v, lambda i, j, s: (s + log_forget[j + 1 : i + 1].sum()).exp())


def delta(q, k, v, beta):
    """By its other form: the state keeps what is orthogonal to the key, and takes the new pair in."""
    size = q.shape[1]
    state, out = torch.zeros(size, v.shape[1], dtype=torch.float64), torch.empty_like(v)
    for t in range(q.shape[0]):
        keeps = torch.eye(size, dtype=torch.float64) - beta[t] * torch.outer(k[t], k[t])
        state = keeps @ state + beta[t] * torch.outer(k[t], v[t])
        out[t] = state.T @ q[t] / size**0.5
    return out


def check(path, direct):
    text = path.read_text()
    small = names_of(text.replace("(4, 8, 4096, 64)\n", "(1, 2, 24, 8)\n"))
    assert small["shape"] == (1, 2, 24, 8), "the file no longer has its shape in a line of its own"
    torch.manual_seed(len(path.stem))
    drawn = small["get_inputs"]()
    inputs = [value.double() for value in drawn]
    with torch.no_grad():
        got, narrow = small["Model"]()(*inputs), small["Model"]()(*drawn)
    for head in range(2):
        expected = direct(*(value[0, head] for value in inputs))
        error = (got[0, head] - expected).abs().max().item()
        assert error < 1e-5, f"{path.name}, head {head}: {error}"
        error = ((narrow[0, head].double() - expected).abs() / (1 + expected.abs())).max().item()
        assert error < 0.05, f"{path.name}, head {head}, as it is drawn: {error}"


# An older torch has no floats of eight bits: bfloat16 stands for them.
if not hasattr(torch, "float8_e4m3fn"):
    torch.float8_e4m3fn = torch.bfloat16
DIRECT = {"Causal_Linear_Attention": linear, "DeltaNet": delta, "Forgetting_Attention": forgetting}
if hasattr(torch.nn.functional, "scaled_dot_product_attention"):
    DIRECT["Causal_Attention"] = attention
looked_at = set()
for path in sorted(FOLDER.glob("*.py")):
    name = path.stem.split("_", 1)[1].removesuffix("_FP8")
    stated = names_of(path.read_text())["operations"]
    assert stated == OPERATIONS.get(name, 68719476736), (path.name, stated)
    if name in DIRECT:
        check(path, DIRECT[name])
        looked_at.add(name)
assert looked_at == set(DIRECT), looked_at
