"""Memory of the processes that this one started, and the shared memory that they hand to each other."""

import os
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

_MIB = 1 << 20
_SHARED = Path("/dev/shm")


@dataclass(frozen=True)
class ProcessMemory:
    """Resident memory of this process's descendants together."""

    rss_mib: float
    """Pages that several processes share, as after `fork`, count in each."""
    pss_mib: float | None
    """Proportional set size: shared pages are split among their processes (Linux; man 5 proc, smaps_rollup)."""


@dataclass(frozen=True)
class SharedMemory:
    """Files in /dev/shm that this process or a descendant has open; torch makes one for each storage."""

    files: int
    mib: float


def descendants_memory() -> ProcessMemory:
    """Measure all processes that this one and its children have started and that still live."""
    rss, pss = 0, 0
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess, psutil.ZombieProcess):
            memory = process.memory_full_info()
            rss += memory.rss
            pss += getattr(memory, "pss", 0)
    return ProcessMemory(rss_mib=rss / _MIB, pss_mib=pss / _MIB if psutil.LINUX else None)


def shared_memory() -> SharedMemory | None:
    """Measure what is shared by file descriptor, as torch does on Linux; None elsewhere."""
    if not psutil.LINUX:
        return None
    device, sizes = _SHARED.stat().st_dev, {}
    for process in [psutil.Process(), *psutil.Process().children(recursive=True)]:
        for file in _open_files(process.pid):
            if file.st_dev == device:
                sizes[file.st_ino] = file.st_blocks * 512
    return SharedMemory(files=len(sizes), mib=sum(sizes.values()) / _MIB)


def settled_shared_memory(*, still_s: float = 0.3, at_most_s: float = 10.0) -> SharedMemory | None:
    """Wait until shared memory has not changed for `still_s`, then measure it."""
    until, last = time.monotonic() + at_most_s, shared_memory()
    while time.monotonic() < until:
        time.sleep(still_s)
        before, last = last, shared_memory()
        if last == before:
            break
    return last


def _open_files(pid: int) -> Iterator[os.stat_result]:
    with suppress(OSError):  # the process has ended, or closed a file
        for link in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(OSError):
                yield link.stat()
