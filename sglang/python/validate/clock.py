"""How long does a call take on the device, and with the host's part?

Each way of serving the operator is a CUDA graph of many calls through the framework's own function, each on arguments of
its own, so that the L2 cache holds none of them; the cache is flushed before each replay; ways take turns in an order that
is drawn anew. What is reported are the samples, of which those of one turn belong together, and their median; the program
that reads them says what they come to, with its interval.
"""

import random
import statistics
import time


def bandwidth(device="cuda"):
    """Bytes read and written a second by a copy of 1 GiB: the best of twelve."""
    import torch

    source = torch.empty(1 << 30, dtype=torch.uint8, device=device).random_()
    target = torch.empty_like(source)
    best = min(events(lambda: target.copy_(source)) for _ in range(12))
    return 2 * source.numel() / best


def events(work):
    """Seconds that this takes on the device."""
    import torch

    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    work()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) * 1e-3


class Way:
    """One way of serving an operator: how to choose it, and its graph."""

    def __init__(self, name, choose, call):
        self.name, self.choose, self.call, self.samples, self.host = name, choose, call, [], []

    def capture(self, arguments):
        """Records a graph of one call for each set of arguments. What the calls return lives as long as the capture, so
        that each writes to memory of its own."""
        import torch

        self.choose()
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for values in arguments[:2]:
                self.call(values)
        torch.cuda.current_stream().wait_stream(stream)
        self.graph, self.calls = torch.cuda.CUDAGraph(), len(arguments)
        with torch.cuda.graph(self.graph):
            returned = [self.call(values) for values in arguments]
        del returned


def reported(ways):
    """The medians and the samples of these ways, in microseconds a call."""
    median = lambda samples: statistics.median(samples) * 1e6
    return {
        "device_us": {way.name: median(way.samples) for way in ways},
        "host_us": {way.name: median(way.host) for way in ways},
        "samples_us": {way.name: [round(s * 1e6, 4) for s in way.samples] for way in ways},
    }


def compare(ways, make, repetitions, seed=0, device="cuda"):
    """Times these ways on arguments that `make(i)` makes; fills their samples, in seconds a call."""
    import torch

    draw = random.Random(seed)
    one = make(0)
    used = sum(t.numel() * t.element_size() for t in one.values() if hasattr(t, "numel"))
    calls = max(20, min(100, (256 << 20) // max(used, 1)))
    sets = max(2, min(calls, (256 << 20) // max(used, 1) + 1))
    arguments = [one] + [make(i) for i in range(1, sets)]
    arguments = [arguments[i % sets] for i in range(calls)]
    flush = torch.empty(256 << 20, dtype=torch.uint8, device=device)
    for way in ways:
        way.capture(arguments)
        way.graph.replay()
        torch.cuda.synchronize()
    for _ in range(repetitions):
        for way in draw.sample(ways, len(ways)):
            flush.zero_()
            way.samples.append(events(way.graph.replay) / way.calls)
    for _ in range(max(3, repetitions // 8)):
        for way in draw.sample(ways, len(ways)):
            way.choose()
            torch.cuda.synchronize()
            begin = time.perf_counter()
            for values in arguments:
                way.call(values)
            torch.cuda.synchronize()
            way.host.append((time.perf_counter() - begin) / way.calls)
