"""Measures of time."""

from collections.abc import Sequence

from trainparity.claims import quantities
from trainparity.claims.measures.figure import Figure, median_s
from trainparity.claims.study import NotMeasurable, Study
from trainparity.records.numbers import number
from trainparity.records.timing import Timing


def seconds(measure: quantities.Seconds, study: Study) -> Figure:
    """Time a step or an epoch: the median step times the steps that visit every sample once."""
    timing = study.timing(measure.run)
    value = median_s(timing) * (study.steps_per_epoch(measure.run) if measure.of == "epoch" else 1)
    return Figure(f"{number(value)} s / {measure.of}", value=value, timings=(timing,))


def time_ratio(measure: quantities.TimeRatio, study: Study) -> Figure:
    """Divide two runs' times; of a difference in training it says so beside the figure."""
    timings = study.timing(measure.run), study.timing(measure.over)
    names = measure.run, measure.over
    times = [_time_s(timing, name, measure, study) for timing, name in zip(timings, names, strict=True)]
    ratio = times[0] / times[1]
    text = f"{ratio:.2f}x ({number(times[0])} s -> {number(times[1])} s / {measure.of})"
    return Figure(text, value=ratio, timings=timings, remark=_not_the_same(names, study))


def gain_ratio(measure: quantities.GainRatio, study: Study) -> Figure:
    """Divide two gains, each a ratio of epochs' times."""
    names = *measure.small, *measure.large
    timings = tuple(study.timing(run) for run in names)
    before, after, large_before, large_after = (
        median_s(timing) * study.steps_per_epoch(run) for run, timing in zip(names, timings, strict=True)
    )
    small, large = before / after, large_before / large_after
    text = f"{measure.small[1]} gains {small:.2f}x, {measure.large[1]} {large:.2f}x"
    return Figure(text, value=small / large, timings=timings, remark=_not_the_same(names, study))


def fastest_within(measure: quantities.FastestWithin, study: Study) -> Figure:
    """Find the fastest run that the device's memory limit allows."""
    limit = study.params.memory_limit_mib
    timings = {run: study.timing(run) for run in measure.runs}
    if limit is None or any(timing.memory.device_allocated_mib is None for timing in timings.values()):
        raise NotMeasurable("there is no device whose memory could be limited")
    fitting = {run: timing for run, timing in timings.items() if timing.memory.peak_mib <= limit}
    each = [f"{run} {number(median_s(t))} s / step in {t.memory.peak_mib:,.0f} MiB" for run, t in timings.items()]
    best = min(fitting, key=lambda run: median_s(fitting[run]), default="none")
    text = f"{best} within {limit:,.0f} MiB: {', '.join(each)}"
    return Figure(text, holds=best == measure.expected, timings=tuple(timings.values()))


def _time_s(timing: Timing, run: str, measure: quantities.TimeRatio, study: Study) -> float:
    if measure.of == "step":
        return median_s(timing)
    epoch = median_s(timing) * study.steps_per_epoch(run)
    return epoch if measure.of == "epoch" else measure.epochs * epoch + (timing.compile_s or 0.0)


def _not_the_same(runs: Sequence[str], study: Study) -> str | None:
    different = [pair for run in runs if run in study.params.configs and (pair := study.verdict(run)) is not None]
    texts = [f"{p.right} is not the same training ({p.cause})" for p in different if p.verdict == "different"]
    return "; ".join(texts) or None
