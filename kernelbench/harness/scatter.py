"""Where may what is put out lie? At other places in every request.

A kernel that moves much memory may be some percent faster or slower by where its output lies, and torch's allocator gives
the same place again and again: one process would be one draw. So before each request its free memory is
laid out anew: gaps of random lengths, and between them places that fit one output each.
"""

import random

import torch

SMALLEST = 1 << 20  # what is smaller comes from other memory of torch's allocator
STEP = 512  # its alignment
GAPS = 256 << 20  # what all gaps may take, about
MOST = 64 << 20
SHARE = 8  # the part of the device's memory that all this may take


class Scatter:
    """Memory of torch's allocator for outputs of these sizes, so many of each, and for what else a call needs."""

    def __init__(self, sizes, count, beside, device):
        self.device = device
        self.random = random.Random()
        self.gaps = []
        self.sizes = [rounded(size) for size in sizes if size > SMALLEST] * count
        if not self.sizes:
            return
        self.most = max(2 * SMALLEST, min(MOST, GAPS // len(self.sizes)))
        room = sum(self.sizes) + len(self.sizes) * self.most + rounded(beside + beside // 4)
        try:
            torch.cuda.empty_cache()
            if room <= torch.cuda.mem_get_info(device)[1] // SHARE:
                self.take(room)
            else:
                self.sizes = []
        except RuntimeError:  # no memory, or an allocator that is not torch's
            self.sizes = []

    def take(self, length):
        return torch.empty(length, dtype=torch.uint8, device=self.device)

    def lay_out(self):
        """Frees the places between new gaps; whether there was memory. What was put out before must have been let go of."""
        self.gaps = []
        places = []
        try:
            for size in self.sizes:
                self.gaps.append(self.take(self.random.randrange(SMALLEST + STEP, self.most, STEP)))
                places.append(self.take(size))
        except RuntimeError:
            self.gaps = []
            return False
        return True


def allocated(most):
    """Bytes of the GPU that torch gives out now, or gave at most since this was last asked."""
    try:
        if most:
            return torch.cuda.max_memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        return torch.cuda.memory_allocated()
    except RuntimeError:
        return 0


def rounded(size):
    return -(-size // STEP) * STEP
