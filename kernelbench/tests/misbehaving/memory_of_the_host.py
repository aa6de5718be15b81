# wrong: it asks for 32 TiB of the host's memory
# ours: memory or hang
# says: 8192 or deadline_ms
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        block = bytearray(1 << 45)
        return nn.functional.softplus(x) + len(block)
