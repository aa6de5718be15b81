# wrong: it floods the line to the program
# ours: forbidden or hang
# where: by hand or GPU
import os
import sys

import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        while True:
            os.write(int(sys.argv[1]), b"{}" * 999)
