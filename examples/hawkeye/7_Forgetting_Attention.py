"""Causal attention with a forget gate, (batch, heads, sequence, head dimension) = (4, 8, 4096, 64) (Hawkeye, section 4.1).

Between a query at i and a key at j <= i the score is q . k / sqrt(64) plus the sum of log_forget over j < t <= i.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F

shape = (4, 8, 4096, 64)
operations = 2 * 4 * 8 * 4096**2 * 64  # as the paper counts them (G.2)


class Model(nn.Module):
    def forward(self, q, k, v, log_forget):
        length = q.shape[2]
        passed = torch.cumsum(log_forget.float(), dim=-1)
        scores = torch.matmul(q, k.transpose(-2, -1)).float() * q.shape[-1] ** -0.5
        scores = scores + passed[..., :, None] - passed[..., None, :]
        later = torch.ones(length, length, dtype=torch.bool, device=q.device).triu(1)
        weights = torch.softmax(scores.masked_fill(later, float("-inf")), dim=-1)
        return torch.matmul(weights.to(v.dtype), v)


def get_inputs():
    return [*(torch.randn(shape) for _ in range(3)), F.logsigmoid(torch.randn(shape[:3]) + 4)]


def get_init_inputs():
    return []
