"""Which Python, which torch, which compilers, which device?"""

import importlib.metadata
import os
import platform
import re
import shutil
import subprocess

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
        "nvcc": None,
        "triton": None,
        "extensions_for": None,
        "folders": [],
    }
    if device.type == "cuda":
        properties = torch.cuda.get_device_properties(device)
        found["device"] = properties.name
        found["capability"] = f"{properties.major}.{properties.minor}"
        found["memory_bytes"] = properties.total_memory
        found["multiprocessors"] = properties.multi_processor_count
        found["l2_bytes"] = getattr(properties, "L2_cache_size", None)
        found["nvcc"], found["triton"] = nvcc_version(), triton_version()
        found["extensions_for"] = built_for(properties.major, properties.minor)
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


def nvcc_version():
    """The version of the nvcc that extensions are built with."""
    home = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH") or "/usr/local/cuda"
    program = os.path.join(home, "bin", "nvcc")
    program = program if os.path.exists(program) else shutil.which("nvcc")
    try:
        said = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=20).stdout
        return re.search(r"release ([\d.]+)", said)[1]
    except Exception:  # no compiler is a fact too
        return None


def triton_version():
    try:
        return importlib.metadata.version("triton")
    except importlib.metadata.PackageNotFoundError:
        return None


def architecture(major, minor):
    """As TORCH_CUDA_ARCH_LIST names the device's architecture, with the instructions that only it has: wgmma and the like."""
    return f"{major}.{minor}" + ("a" if (major, minor) == (9, 0) else "")


def built_for(major, minor):
    return os.environ.get("TORCH_CUDA_ARCH_LIST") or "sm_" + architecture(major, minor).replace(".", "")
