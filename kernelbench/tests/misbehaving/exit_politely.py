# wrong: it raises SystemExit
# ours: raised
# says: SystemExit
import sys

import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        sys.exit(0)
