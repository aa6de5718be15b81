# wrong: a thread of it reads address 0
# ours: crash
# says: SIGSEGV
# where: by hand or GPU
import ctypes
import threading

import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        thread = threading.Thread(target=ctypes.string_at, args=(0,))
        thread.start()
        thread.join()
        return nn.functional.softplus(x)
