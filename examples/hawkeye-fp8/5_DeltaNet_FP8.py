"""The delta rule of DeltaNet on queries, keys and values in eight bits (E4M3), (batch, heads, sequence, head dimension) =
(4, 8, 4096, 64) (Hawkeye, section 4.1).

A state S of 64 x 64 a head begins at zero. Each position t takes back what S holds for its key and writes its value there:
S = S + beta_t * k_t (v_t - k_t S), and puts out q_t S / sqrt(64). Keys have the length 1; beta lies between 0 and 1.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F

shape = (4, 8, 4096, 64)
operations = 4 * 4 * 8 * 4096**2 * 64  # as the paper counts them (G.2)


def widened(*tensors):
    """Eight bits as sixteen; what is wider stays."""
    return [t.to(torch.bfloat16) if t.dtype == torch.float8_e4m3fn else t for t in tensors]


class Model(nn.Module):
    def forward(self, q, k, v, beta):
        q, k, v = widened(q, k, v)
        keys, values, weights = k.float(), v.float(), beta.float()
        queries = q.float() * q.shape[-1] ** -0.5
        state = torch.zeros(*q.shape[:2], q.shape[-1], v.shape[-1], dtype=torch.float32, device=q.device)
        out = torch.empty_like(values)
        for t in range(q.shape[2]):
            key = keys[:, :, t]
            old = torch.einsum("bhk,bhkv->bhv", key, state)
            new = weights[:, :, t, None] * (values[:, :, t] - old)
            state = state + key[..., None] * new[..., None, :]
            out[:, :, t] = torch.einsum("bhk,bhkv->bhv", queries[:, :, t], state)
        return out.to(v.dtype)


def get_inputs():
    drawn = [torch.randn(shape), F.normalize(torch.randn(shape), dim=-1), torch.randn(shape)]
    return [*(t.to(torch.float8_e4m3fn) for t in drawn), torch.rand(shape[:3])]


def get_init_inputs():
    return []
