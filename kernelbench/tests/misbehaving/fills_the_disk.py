# wrong: it writes until the disk is full
# ours: crash or raised or hang
# where: by hand or GPU
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        with open("large", "wb") as file:
            while True:
                file.write(bytes(1 << 24))
