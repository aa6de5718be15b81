# kind: 1, the work goes on on another stream after the last event
# ours: not faster
# where: GPU
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        aside = torch.cuda.Stream()
        with torch.cuda.stream(aside):
            for _ in range(40):
                out.copy_(nn.functional.softplus(x))
        out.record_stream(aside)
        return out
