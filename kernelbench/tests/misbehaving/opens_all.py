# wrong: it opens files until there are no more
# ours: raised
# says: Too many open files
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        kept = []
        while True:
            kept.append(open("/dev/null"))
