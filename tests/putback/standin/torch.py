"""As much of torch as a guard asks."""


class cuda:
    capability = (9, 0)

    @staticmethod
    def get_device_capability(device):
        return cuda.capability


class compiler:
    @staticmethod
    def is_compiling():
        return False


class Device:
    type, index = "cuda", 0

    def __str__(self):
        return "cuda:0"


class Tensor:
    """An array that holds nothing."""

    device = Device()

    def __init__(self, shape, dtype="torch.bfloat16", start=0, strides=None):
        self.shape, self.dtype, self.start = tuple(shape), dtype, start
        dense = tuple(self.size(place + 1) for place in range(len(shape)))
        self.strides = strides or dense

    def size(self, first):
        product = 1
        for size in self.shape[first:]:
            product *= size
        return product

    def stride(self):
        return self.strides

    def is_contiguous(self):
        return self.strides == tuple(self.size(place + 1) for place in range(len(self.shape)))

    def data_ptr(self):
        return self.start

    def numel(self):
        return self.size(0)

    def element_size(self):
        return 2
