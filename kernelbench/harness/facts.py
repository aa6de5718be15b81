"""Which Python, which torch, which device?"""

import platform

import torch


def facts(device):
    found = {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "device": platform.processor() or platform.machine(),
        "capability": None,
        "memory_bytes": 0,
        "multiprocessors": None,
        "l2_bytes": None,
        "copy_bytes_per_second": None,
        "folders": [],
    }
    if device.type == "cuda":
        properties = torch.cuda.get_device_properties(device)
        found["device"] = properties.name
        found["capability"] = f"{properties.major}.{properties.minor}"
        found["memory_bytes"] = properties.total_memory
        found["multiprocessors"] = properties.multi_processor_count
        found["l2_bytes"] = getattr(properties, "L2_cache_size", None)
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
        found["copy_bytes_per_second"] = best
    return found
