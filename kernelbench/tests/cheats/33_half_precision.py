# kind: 33, it multiplies what it has rounded to half precision
# problem: 2_Matmul
# ours: labelled or mismatch
# says: lower precision or wrong
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, a, b):
        return a.half().float() @ b
