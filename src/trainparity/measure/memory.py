"""Peak memory of this process and its device."""

import resource
import sys
from contextlib import suppress
from pathlib import Path

import torch

from trainparity.records.timing import Memory

_MIB = 1 << 20


def reset_peaks(device: torch.device) -> None:
    """Start counting peaks anew, as far as the system can (Linux, CUDA)."""
    clear = Path("/proc/self/clear_refs")
    if clear.exists():
        with suppress(OSError):  # a container may forbid it; then the peak is the whole process's
            clear.write_text("5")  # resets VmHWM: man 5 proc
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)


def peaks(device: torch.device) -> Memory:
    """Return the peaks since the last reset; without Linux the process's, on MPS what is allocated now."""
    allocated = reserved = None
    if device.type == "cuda":
        allocated = torch.cuda.max_memory_allocated(device) / _MIB
        reserved = torch.cuda.max_memory_reserved(device) / _MIB
    elif device.type == "mps":
        allocated = torch.mps.current_allocated_memory() / _MIB
        reserved = torch.mps.driver_allocated_memory() / _MIB
    return Memory(host_mib=_host_peak(), device_allocated_mib=allocated, device_reserved_mib=reserved)


def _host_peak() -> float:
    status = Path("/proc/self/status")
    if status.exists():
        for line in status.read_text().splitlines():
            if line.startswith("VmHWM"):
                return int(line.split()[1]) / 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / _MIB if sys.platform == "darwin" else peak / 1024
