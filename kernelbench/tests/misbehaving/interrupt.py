# wrong: it raises KeyboardInterrupt
# ours: raised
# says: KeyboardInterrupt
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        raise KeyboardInterrupt
