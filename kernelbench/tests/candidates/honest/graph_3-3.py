# right: the whole net in a CUDA graph, captured in the first call, its output cloned
# problem: level3/3
# ours: passed
import torch
import torch.nn as nn
import torch.nn.functional as F

class ModelNew(nn.Module):
    def __init__(self, input_size, hidden_layer_sizes, output_size):
        super().__init__()

        layers = []
        current_input_size = input_size

        for hidden_size in hidden_layer_sizes:
            layers.append(nn.Linear(current_input_size, hidden_size))
            layers.append(nn.ReLU())
            current_input_size = hidden_size

        layers.append(nn.Linear(current_input_size, output_size))

        self.network = nn.Sequential(*layers)

    def run(self, x):
        return self.network(x)

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
