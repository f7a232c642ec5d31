"""Whether data fits into this machine's memory, asked before it is loaded: afterwards the kernel ends a process."""

import os
from pathlib import Path

from trainparity.data.errors import DataError
from trainparity.records.numbers import number

_CGROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")
_SHARE = 0.9
_GIB = 2**30


def total_bytes() -> int:
    """Return the memory that this process may use: the machine's, or less in a container."""
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    text = _CGROUP_LIMIT.read_text(encoding="utf-8").strip() if _CGROUP_LIMIT.exists() else "max"
    return machine if text == "max" else min(machine, int(text))


def fits(size_bytes: int) -> bool:
    """Tell whether so much data takes less than nine tenths of the memory."""
    return size_bytes < _SHARE * total_bytes()


def check_fits(size_bytes: int, what: str, remedy: str) -> None:
    """Raise a `DataError` if `what` takes nine tenths of the memory or more; `remedy` says how it would take less."""
    if not fits(size_bytes):
        raise DataError(
            f"{what} takes {number(size_bytes / _GIB)} GiB; this machine's memory, or container's, is "
            f"{number(total_bytes() / _GIB)} GiB; {remedy}"
        )
