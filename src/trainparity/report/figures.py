"""What follows from one run's timing; the stage `experiment` needs no more of the report than this."""

import statistics

from trainparity.records.base import Record, significant
from trainparity.records.run import Status
from trainparity.records.timing import Timing
from trainparity.records.verdict import Verdict


class StepTime(Record):
    """Wall time of one optimizer step in milliseconds."""

    median: float
    """50th percentile."""
    p10: float
    """10th percentile."""
    p90: float
    """90th percentile."""


class Figures(Record):
    """What follows from a run's `Timing`."""

    step_ms: StepTime
    """Of the timed steps."""
    samples_per_s: float
    """Global batch / median step time."""
    wait_ms: float | None
    """Median time of a step spent waiting for data."""
    peak_memory_mib: float
    """Allocated on the device on cuda and mps, else resident in host memory; of one process, the largest."""
    flops_per_s: float | None
    """Floating-point operations of a step / median step time."""
    peak_flops_fraction: float | None
    """The same as a fraction of the peak measured on this machine."""


def experiment(status: Status, timing: Timing | None, verdict: Verdict) -> dict[str, str | float | None]:
    """Return what `dvc exp show` compares between experiments of one run: whether it is its reference's training.

    And a few figures, with four digits each.
    """
    figures = figures_of(timing) if timing else None
    found = {
        "configuration": status.run,
        "status": status.status,
        "verdict": verdict.verdict,
        "cause": verdict.cause,
        "distance_over_floor": verdict.distance_over_floor,
        "device": status.device,
        "loss": status.loss,
        "step_ms": figures.step_ms.median if figures else None,
        "samples_per_s": figures.samples_per_s if figures else None,
        "peak_memory_mib": figures.peak_memory_mib if figures else None,
        "compile_s": timing.compile_s if timing else None,
    }
    return {name: significant(value, 4) if isinstance(value, float) else value for name, value in found.items()}


def figures_of(timing: Timing) -> Figures:
    """Compute what follows from a run's timing."""
    p10, median, p90 = timing.step_percentiles_ms
    flops_per_s = timing.flops_per_step / (median / 1000) if timing.flops_per_step is not None else None
    peak = timing.peak_flops_per_s
    return Figures(
        step_ms=StepTime(median=median, p10=p10, p90=p90),
        samples_per_s=timing.global_batch_size / (median / 1000),
        wait_ms=statistics.median(timing.wait_ms) if timing.wait_ms else None,
        peak_memory_mib=timing.memory.peak_mib,
        flops_per_s=flops_per_s,
        peak_flops_fraction=flops_per_s / peak if flops_per_s is not None and peak else None,
    )
