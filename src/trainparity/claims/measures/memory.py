"""Measures of memory."""

from trainparity.claims import quantities
from trainparity.claims.measures.figure import Figure
from trainparity.claims.study import Study


def memory_ratio(measure: quantities.MemoryRatio, study: Study) -> Figure:
    """Divide two runs' peaks."""
    timings = study.timing(measure.run), study.timing(measure.over)
    peaks = [timing.memory.peak_mib for timing in timings]
    ratio = peaks[0] / peaks[1]
    text = f"{100 * (ratio - 1):+.1f} % ({peaks[1]:,.0f} -> {peaks[0]:,.0f} MiB)"
    return Figure(text, value=ratio, timings=timings)


def memory(measure: quantities.Memory, study: Study) -> Figure:
    """Return a run's peak."""
    timing = study.timing(measure.run)
    return Figure(f"{timing.memory.peak_mib:,.0f} MiB", value=timing.memory.peak_mib, timings=(timing,))
