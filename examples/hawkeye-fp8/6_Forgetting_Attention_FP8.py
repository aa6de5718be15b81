"""Causal attention with a forget gate on queries, keys and values in eight bits (E4M3), (batch, heads, sequence, head
dimension) = (4, 8, 4096, 64) (Hawkeye, section 4.1).

Between a query at i and a key at j <= i the score is q . k / sqrt(64) plus the sum of log_forget over j < t <= i.
Queries are drawn four times as large as the rest: a row looks at few keys, and what it puts out is above the tolerance.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F

shape = (4, 8, 4096, 64)
operations = 2 * 4 * 8 * 4096**2 * 64  # as the paper counts them (G.2)


def widened(*tensors):
    """Eight bits as sixteen; what is wider stays."""
    return [t.to(torch.bfloat16) if t.dtype == torch.float8_e4m3fn else t for t in tensors]


class Model(nn.Module):
    def forward(self, q, k, v, log_forget):
        q, k, v = widened(q, k, v)
        length = q.shape[2]
        passed = torch.cumsum(log_forget.float(), dim=-1)
        scores = torch.matmul(q, k.transpose(-2, -1)).float() * q.shape[-1] ** -0.5
        scores = scores + passed[..., :, None] - passed[..., None, :]
        later = torch.ones(length, length, dtype=torch.bool, device=q.device).triu(1)
        weights = torch.softmax(scores.masked_fill(later, float("-inf")), dim=-1)
        return torch.matmul(weights.to(v.dtype), v)


def get_inputs():
    drawn = [4 * torch.randn(shape), torch.randn(shape), torch.randn(shape)]
    return [*(t.to(torch.float8_e4m3fn) for t in drawn), F.logsigmoid(torch.randn(shape[:3]) + 4)]


def get_init_inputs():
    return []
