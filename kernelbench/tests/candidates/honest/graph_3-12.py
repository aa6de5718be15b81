# right: the whole net in a CUDA graph that is captured anew for other shapes or other weights
# problem: level3/12
# ours: passed
import torch
import torch.nn as nn

class ModelNew(nn.Module):
    def __init__(self, num_classes=1000):
        super().__init__()

        # VGG19 architecture: 16 Conv layers + 5 MaxPool layers + 3 Fully Connected layers
        self.features = nn.Sequential(
            # Block 1
            nn.Conv2d(3, 64, kernel_size=3, padding=1),
            nn.ReLU(inplace=True),
            nn.Conv2d(64, 64, kernel_size=3, padding=1),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(kernel_size=2, stride=2),

            # Block 2
            nn.Conv2d(64, 128, kernel_size=3, padding=1),
            nn.ReLU(inplace=True),
            nn.Conv2d(128, 128, kernel_size=3, padding=1),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(kernel_size=2, stride=2),

            # Block 3
            nn.Conv2d(128, 256, kernel_size=3, padding=1),
            nn.ReLU(inplace=True),
            nn.Conv2d(256, 256, kernel_size=3, padding=1),
            nn.ReLU(inplace=True),
            nn.Conv2d(256, 256, kernel_size=3, padding=1),
            nn.ReLU(inplace=True),
            nn.Conv2d(256, 256, kernel_size=3, padding=1),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(kernel_size=2, stride=2),

            # Block 4
            nn.Conv2d(256, 512, kernel_size=3, padding=1),
            nn.ReLU(inplace=True),
            nn.Conv2d(512, 512, kernel_size=3, padding=1),
            nn.ReLU(inplace=True),
            nn.Conv2d(512, 512, kernel_size=3, padding=1),
            nn.ReLU(inplace=True),
            nn.Conv2d(512, 512, kernel_size=3, padding=1),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(kernel_size=2, stride=2),

            # Block 5
            nn.Conv2d(512, 512, kernel_size=3, padding=1),
            nn.ReLU(inplace=True),
            nn.Conv2d(512, 512, kernel_size=3, padding=1),
            nn.ReLU(inplace=True),
            nn.Conv2d(512, 512, kernel_size=3, padding=1),
            nn.ReLU(inplace=True),
            nn.Conv2d(512, 512, kernel_size=3, padding=1),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(kernel_size=2, stride=2)
        )

        self.classifier = nn.Sequential(
            nn.Linear(512 * 7 * 7, 4096),
            nn.ReLU(inplace=True),
            nn.Dropout(p=0.0),
            nn.Linear(4096, 4096),
            nn.ReLU(inplace=True),
            nn.Dropout(p=0.0),
            nn.Linear(4096, num_classes)
        )

    def run(self, x):
        x = self.features(x)
        x = torch.flatten(x, 1)
        x = self.classifier(x)
        return x

    @torch.no_grad()
    def capture(self, x):
        self._graph = self._static_y = None
        self._static_x = torch.empty_like(x, memory_format=torch.contiguous_format)
        self._static_x.copy_(x)
        kept = [(buffer, buffer.clone()) for buffer in self.buffers()]
        current = torch.cuda.current_stream()
        side = torch.cuda.Stream()
        side.wait_stream(current)
        with torch.cuda.stream(side):
            for _ in range(3):
                self.run(self._static_x)
        current.wait_stream(side)
        for buffer, value in kept:
            buffer.copy_(value)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            self._static_y = self.run(self._static_x)
        self._graph = graph
        self._done = torch.cuda.Event()

    @torch.no_grad()
    def forward(self, x):
        if not x.is_cuda or torch.cuda.is_current_stream_capturing():
            return self.run(x)
        tensors = list(self.parameters()) + list(self.buffers())
        key = (x.shape, x.dtype, x.device, self.training, [(t.data_ptr(), t.dtype) for t in tensors])
        if getattr(self, "_key", None) != key:
            self._key = None
            self.capture(x)
            self._key = key
        stream = torch.cuda.current_stream()
        stream.wait_event(self._done)  # the call before may have been on another stream
        self._static_x.copy_(x)
        self._graph.replay()
        y = self._static_y.clone()
        self._done.record(stream)
        return y
