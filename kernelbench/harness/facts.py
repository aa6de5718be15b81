"""Which Python, which torch, which device?"""

import json
import platform
import sys

import torch

device = torch.device(sys.argv[1])
facts = {
    "python": platform.python_version(),
    "torch": torch.__version__,
    "cuda": torch.version.cuda,
    "device": platform.processor() or platform.machine(),
    "capability": None,
    "memory_bytes": 0,
    "multiprocessors": None,
    "l2_bytes": None,
    "copy_bytes_per_second": None,
    "folders": sorted({sys.prefix, sys.base_prefix, *(path for path in sys.path if path)}),
}
if device.type == "cuda":
    properties = torch.cuda.get_device_properties(device)
    facts["device"] = properties.name
    facts["capability"] = f"{properties.major}.{properties.minor}"
    facts["memory_bytes"] = properties.total_memory
    facts["multiprocessors"] = properties.multi_processor_count
    facts["l2_bytes"] = getattr(properties, "L2_cache_size", None)
    best = 0.0
    for mebibytes in (16, 64, 2048):
        source = torch.empty(mebibytes << 20, dtype=torch.uint8, device=device)
        target = torch.empty_like(source)
        for _ in range(8):
            first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            first.record()
            target.copy_(source)
            last.record()
            torch.cuda.synchronize()
            best = max(best, 2 * source.numel() / (first.elapsed_time(last) / 1e3))
    facts["copy_bytes_per_second"] = best
print(json.dumps(facts))
