# right: the attention in a CUDA graph, captured in the first call, its output cloned
# problem: level3/50
# ours: passed
import torch
import torch.nn as nn
import torch.nn.functional as F
import math

# From https://github.com/karpathy/minGPT/blob/master/mingpt/model.py

class NewGELU(nn.Module):
    def __init__(self):
        super(NewGELU, self).__init__()

    def forward(self, x):
        return 0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0))))

class ModelNew(nn.Module):

    def __init__(self, n_embd, n_head, max_seqlen):
        super().__init__()
        assert n_embd % n_head == 0
        # key, query, value projections for all heads, but in a batch
        self.c_attn = nn.Linear(n_embd, 3 * n_embd)
        # output projection
        self.c_proj = nn.Linear(n_embd, n_embd)
        # causal mask to ensure that attention is only applied to the left in the input sequence
        self.register_buffer("bias", torch.tril(torch.ones(max_seqlen, max_seqlen))
                                     .view(1, 1, max_seqlen, max_seqlen))
        self.n_head = n_head
        self.n_embd = n_embd

    def run(self, x):
        B, T, C = x.size() # batch size, sequence length, embedding dimensionality (n_embd)

        # calculate query, key, values for all heads in batch and move head forward to be the batch dim
        q, k ,v  = self.c_attn(x).split(self.n_embd, dim=2)
        k = k.view(B, T, self.n_head, C // self.n_head).transpose(1, 2) # (B, nh, T, hs)
        q = q.view(B, T, self.n_head, C // self.n_head).transpose(1, 2) # (B, nh, T, hs)
        v = v.view(B, T, self.n_head, C // self.n_head).transpose(1, 2) # (B, nh, T, hs)

        # causal self-attention; Self-attend: (B, nh, T, hs) x (B, nh, hs, T) -> (B, nh, T, T)
        att = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
        att = att.masked_fill(self.bias[:,:,:T,:T] == 0, float('-inf'))
        att = F.relu(att)

        y = att @ v # (B, nh, T, T) x (B, nh, T, hs) -> (B, nh, T, hs)
        y = y.transpose(1, 2).contiguous().view(B, T, C) # re-assemble all head outputs side by side

        return y

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
