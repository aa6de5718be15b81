# wrong: it puts out a list that holds itself
# ours: raised
# says: RecursionError
# where: by hand or GPU
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        endless = []
        endless.append(endless)
        return endless
