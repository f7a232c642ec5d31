"""What else used the processors while a run was timed."""

from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from trainparity import extras
from trainparity.records.timing import MachineLoad

_CORES = Path("/sys/devices/system/cpu")


class _Times(NamedTuple):
    """Processor seconds of the whole machine since it started."""

    total: float
    busy: float
    stolen: float


class MachineLoadMeter:
    """Counts the machine's processor time from its making to `read`; does nothing without psutil."""

    def __init__(self) -> None:
        self._is_there = extras.is_there("psutil")
        if self._is_there:
            self._before, self._throttled, self._mhz = _times(), _throttle_events(), _frequency_mhz()

    def read(self, own_cpu_s: float) -> MachineLoad | None:
        """Return what others used since this meter was made; None without psutil.

        Args:
            own_cpu_s: Processor seconds that the timed processes of this machine used in that time, all ranks together.
        """
        if not self._is_there:
            return None
        total, busy, stolen = (after - before for after, before in zip(_times(), self._before, strict=True))
        total = max(total, 1e-9)
        throttled, before = _throttle_events(), self._throttled
        frequencies = [mhz for mhz in (self._mhz, _frequency_mhz()) if mhz]
        return MachineLoad(
            others=min(1.0, max(0.0, busy - own_cpu_s) / total),
            stolen=min(1.0, max(0.0, stolen / total)),
            slowest_mhz=min(frequencies, default=None),
            fastest_mhz=max(frequencies, default=None),
            throttled=None if throttled is None or before is None else throttled - before,
        )


def own_cpu_s() -> float:
    """Return the processor seconds of this process and its children so far; 0 without psutil."""
    if not extras.is_there("psutil"):
        return 0.0
    import psutil

    this = psutil.Process()
    seconds = 0.0
    for process in (this, *this.children(recursive=True)):
        with suppress(psutil.NoSuchProcess, psutil.ZombieProcess):
            times = process.cpu_times()
            seconds += times.user + times.system
    return seconds


def _times() -> _Times:
    import psutil

    times = psutil.cpu_times()
    stolen = getattr(times, "steal", 0.0)  # Linux in a virtual machine
    idle = times.idle + getattr(times, "iowait", 0.0)
    # Linux counts a guest's time in `user` and `nice` already.
    total = sum(times) - getattr(times, "guest", 0.0) - getattr(times, "guest_nice", 0.0)
    return _Times(total, total - idle - stolen, stolen)


def _frequency_mhz() -> float | None:
    import psutil

    with suppress(OSError, RuntimeError, NotImplementedError, AttributeError):  # not every system tells
        frequency = psutil.cpu_freq()
        return float(frequency.current) if frequency and frequency.current else None
    return None


def _throttle_events() -> int | None:
    """Return how often cores were slowed down for their heat since the start; None where the kernel does not say."""
    counts = list(_CORES.glob("cpu[0-9]*/thermal_throttle/core_throttle_count"))
    with suppress(OSError, ValueError):
        return sum(int(path.read_text()) for path in counts) if counts else None
    return None
