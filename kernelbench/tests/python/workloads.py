"""Hawkeye's workloads at small sizes, against what they are said to compute, position by position in double precision, and the
operations that they state: workloads.py FOLDER."""

import pathlib
import sys

import torch

FOLDER = pathlib.Path(sys.argv[1])
# HK-56: what the paper's formulas give at its sizes.
OPERATIONS = {1: 137438953472, 2: 2 * 8192**3, 3: 53972582400, 6: 137438953472}


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


def check(number, direct):
    text = next(FOLDER.glob(f"{number}_*.py")).read_text()
    small = names_of(text.replace("(4, 8, 4096, 64)\n", "(1, 2, 24, 8)\n"))
    assert small["shape"] == (1, 2, 24, 8), "the file no longer has its shape in a line of its own"
    torch.manual_seed(number)
    inputs = [value.double() for value in small["get_inputs"]()]
    with torch.no_grad():
        got = small["Model"]()(*inputs)
    for head in range(2):
        expected = direct(*(value[0, head] for value in inputs))
        error = (got[0, head] - expected).abs().max().item()
        assert error < 1e-5, f"{number}, head {head}: {error}"


for path in sorted(FOLDER.glob("*.py")):
    number = int(path.name.split("_")[0])
    stated = names_of(path.read_text())["operations"]
    assert stated == OPERATIONS.get(number, 68719476736), (path.name, stated)
if hasattr(torch.nn.functional, "scaled_dot_product_attention"):
    check(4, attention)
check(5, linear)
check(6, delta)
check(7, forgetting)
