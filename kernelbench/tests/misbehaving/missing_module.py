# wrong: it imports what is not there
# ours: raised
# says: nothing_like_this
# where: by hand or GPU
import torch.nn as nn

import nothing_like_this


class ModelNew(nn.Module):
    def forward(self, x):
        return nn.functional.softplus(x)
