# wrong: it starts threads without end
# ours: hang or raised or memory
# where: by hand or GPU
import threading

import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        while True:
            threading.Thread(target=threading.Event().wait, daemon=True).start()
