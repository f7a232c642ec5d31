"""How each measure of claims.yaml is computed from what the runs left on disk."""

import statistics
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from trainparity.claims import schema
from trainparity.claims.study import NotMeasurable, Study
from trainparity.records.timing import Timing
from trainparity.records.verdict import JUDGED, SAME_TRAINING


class Figure(NamedTuple):
    """What was measured."""

    text: str
    """With its unit."""
    value: float | None = None
    """As a number, to be compared with `expect`."""
    holds: bool | None = None
    """Whether the claim is confirmed, for measures that judge themselves."""
    timings: tuple[Timing, ...] = ()
    """What it was computed from, if it is one of time or memory."""
    remark: str | None = None


def weights(measure: schema.Weights, study: Study) -> Figure:
    """Compare final weights with published digits (article B)."""
    found = {run: study.weights(run) for run in measure.runs}
    equal = {run: measure.equal(values) for run, values in found.items()}
    shown = ", ".join(f"{value:.{measure.decimals}f}" for value in found[measure.runs[0]])
    same = "same digits from " + " and ".join(measure.runs) if all(equal.values()) else f"digits equal: {equal}"
    return Figure(f"[{shown}]; {same}", holds=all(equal.values()))


def shards(measure: schema.Shards, study: Study) -> Figure:
    """Compare which rank saw which sample with the micro-batches of an accumulating run (article B)."""
    ranks, passes = (study.trace(run).arrays for run in (measure.run, measure.order))
    by_rank = ranks["rank/samples"]  # [T, R, n]; sample + 1, 0 fills up
    num_steps, world_size, _ = by_rank.shape
    in_order = passes["rank/samples"][:, 0].reshape(num_steps, world_size, -1)
    holds = bool(by_rank.shape == in_order.shape and (by_rank == in_order).all())
    first = "; ".join(f"rank {r}: {_listed(row)}" for r, row in enumerate((by_rank[0] - 1).tolist()))
    return Figure(f"step 0: {first}; micro-batches of {measure.order} {'the same' if holds else 'others'}", holds=holds)


def same_training(measure: schema.SameTraining, study: Study) -> Figure:
    """List the verdicts on pairs."""
    pairs = {name: study.pair(name) for name in measure.pairs}
    for name, pair in pairs.items():
        if pair.verdict not in JUDGED:
            raise NotMeasurable(f"{name}: {pair.verdict}: {pair.reason}")
    text = ", ".join(f"{n} {pair.verdict}" + (f" ({pair.cause})" if pair.cause else "") for n, pair in pairs.items())
    return Figure(text, holds=all(pair.verdict in SAME_TRAINING for pair in pairs.values()))


def parameters(measure: schema.Parameters, study: Study) -> Figure:
    """Count a run's parameters."""
    count = study.num_parameters(measure.run, measure.scale)
    return Figure(f"{count:,}", value=count, remark=measure.scale and f"built, not trained, at {measure.scale} scale")


def seconds(measure: schema.Seconds, study: Study) -> Figure:
    """Time a step or an epoch: the median step times the steps that visit every sample once."""
    timing = study.timing(measure.run)
    value = _median_s(timing) * (study.steps_per_epoch(measure.run) if measure.of == "epoch" else 1)
    return Figure(f"{value:.3g} s / {measure.of}", value=value, timings=(timing,))


def time_ratio(measure: schema.TimeRatio, study: Study) -> Figure:
    """Divide two runs' times; of a difference in training it says so beside the figure."""
    timings = study.timing(measure.run), study.timing(measure.over)
    names = measure.run, measure.over
    times = [_time_s(timing, name, measure, study) for timing, name in zip(timings, names, strict=True)]
    ratio = times[0] / times[1]
    text = f"{ratio:.2f}x ({times[0]:.3g} s -> {times[1]:.3g} s / {measure.of})"
    return Figure(text, value=ratio, timings=timings, remark=_not_the_same(names, study))


def gain_ratio(measure: schema.GainRatio, study: Study) -> Figure:
    """Divide two gains, each a ratio of epochs' times."""
    names = *measure.small, *measure.large
    timings = tuple(study.timing(run) for run in names)
    before, after, large_before, large_after = (
        _median_s(timing) * study.steps_per_epoch(run) for run, timing in zip(names, timings, strict=True)
    )
    small, large = before / after, large_before / large_after
    text = f"{measure.small[1]} gains {small:.2f}x, {measure.large[1]} {large:.2f}x"
    return Figure(text, value=small / large, timings=timings, remark=_not_the_same(names, study))


def memory_ratio(measure: schema.MemoryRatio, study: Study) -> Figure:
    """Divide two runs' peaks."""
    timings = study.timing(measure.run), study.timing(measure.over)
    peaks = [timing.memory.peak_mib for timing in timings]
    ratio = peaks[0] / peaks[1]
    text = f"{100 * (ratio - 1):+.1f} % ({peaks[1]:,.0f} -> {peaks[0]:,.0f} MiB)"
    return Figure(text, value=ratio, timings=timings)


def memory(measure: schema.Memory, study: Study) -> Figure:
    """Return a run's peak."""
    timing = study.timing(measure.run)
    return Figure(f"{timing.memory.peak_mib:,.0f} MiB", value=timing.memory.peak_mib, timings=(timing,))


def fastest_within(measure: schema.FastestWithin, study: Study) -> Figure:
    """Find the fastest run that the device's memory limit allows."""
    limit = study.params.memory_limit_mib
    timings = {run: study.timing(run) for run in measure.runs}
    if limit is None or any(timing.memory.device_allocated_mib is None for timing in timings.values()):
        raise NotMeasurable("there is no device whose memory could be limited")
    fitting = {run: timing for run, timing in timings.items() if timing.memory.peak_mib <= limit}
    each = [f"{run} {_median_s(t):.3g} s / step in {t.memory.peak_mib:,.0f} MiB" for run, t in timings.items()]
    best = min(fitting, key=lambda run: _median_s(fitting[run]), default="none")
    text = f"{best} within {limit:,.0f} MiB: {', '.join(each)}"
    return Figure(text, holds=best == measure.expected, timings=tuple(timings.values()))


def compilation(measure: schema.Compilation, study: Study) -> Figure:
    """Return Dynamo's seconds."""
    timing = study.measured(measure.run)
    return Figure(f"{_compile_s(timing):.1f} s", value=_compile_s(timing), timings=(timing,))


def break_even(measure: schema.BreakEven, study: Study) -> Figure:
    """Divide the compilation by what each compiled epoch saves."""
    compiled, eager = study.timing(measure.run), study.timing(measure.over)
    saved = (_median_s(eager) - _median_s(compiled)) * study.steps_per_epoch(measure.run)
    if saved <= 0:
        return Figure("never: a compiled epoch is no faster", value=float("inf"), timings=(compiled, eager))
    epochs = _compile_s(compiled) / saved
    return Figure(f"after {epochs:.3g} epochs", value=epochs, timings=(compiled, eager))


def graph_breaks(measure: schema.GraphBreaks, study: Study) -> Figure:
    """Count graph breaks, and say where they are."""
    timing = study.measured(measure.run)
    if timing.graph_breaks is None:
        raise NotMeasurable(f"{measure.run} was not compiled, or this torch keeps no account of it")
    places = f": {'; '.join(timing.break_places)}" if timing.break_places else ""
    return Figure(f"{timing.graph_breaks} in {timing.graphs} graphs{places}", value=timing.graph_breaks)


def outcome(measure: schema.Outcome, study: Study) -> Figure:
    """Say whether a run trained."""
    status = study.status(measure.run)
    if status.status == "skipped":
        raise NotMeasurable(f"{measure.run} was {status.outcome}")
    return Figure(status.outcome, holds=status.status == measure.status)


def accuracy(measure: schema.Accuracy, study: Study) -> Figure:
    """Compare accuracy, precision and recall on held-out samples."""
    ours, theirs = study.evaluation(measure.run), study.evaluation(measure.over)
    scores = [(name, getattr(ours, name), getattr(theirs, name)) for name in ("accuracy", "precision", "recall")]
    text = ", ".join(f"{name} {theirs:.3f} -> {ours:.3f}" for name, ours, theirs in scores)
    return Figure(f"{text} on {ours.samples} samples", value=max(abs(a - b) for _, a, b in scores))


def learns_alike(measure: schema.LearnsAlike, study: Study) -> Figure:
    """Return the verdict on two recipes' learning curves."""
    result = study.curves(measure.curves)
    if result.verdict == "cannot judge":
        raise NotMeasurable(result.sentence)
    return Figure(result.sentence, holds=result.verdict == measure.verdict)


def losses_fall(measure: schema.LossesFall, study: Study) -> Figure:
    """Compare the first fifth of each run's losses with the last."""
    parts = {run: np.array_split(study.losses(run), 5) for run in measure.runs}
    ends = {run: (float(part[0].mean()), float(part[-1].mean())) for run, part in parts.items()}
    text = ", ".join(f"{run} {first:.4g} -> {last:.4g}" for run, (first, last) in ends.items())
    return Figure(text, holds=all(last < first for first, last in ends.values()))


def loading_time(measure: schema.LoadingTime, study: Study) -> Figure:
    """Divide an epoch's time with so many workers by that with others."""
    ours, theirs = study.loading(measure.workers), study.loading(measure.than)
    assert ours.figures and theirs.figures
    ratio = ours.figures.epoch_s / theirs.figures.epoch_s
    return Figure(f"{ratio:.2f}x; {ours.sentence}; {theirs.sentence}", value=ratio)


def batches_held(measure: schema.BatchesHeld, study: Study) -> Figure:
    """Count the batches in shared memory."""
    measured = study.loading(measure.workers, measure.prefetch_factor)
    assert measured.figures
    held = measured.figures.memory.batches_held
    if held is None:
        raise NotMeasurable("this system does not show what lies in shared memory")
    return Figure(f"{held:.1f} with {measure.workers} workers x {measure.prefetch_factor}", value=held)


def loader_failures(measure: schema.LoaderFailures, study: Study) -> Figure:
    """Count failed loaders; the run that had them went on without workers."""
    timing = study.measured(measure.run)
    return Figure(f"{timing.loader_failures} of {timing.world_size} loaders failed", value=timing.loader_failures)


def telemetry(measure: schema.Telemetry, study: Study) -> Figure:
    """Return what NVML saw."""
    timing = study.timing(measure.run)
    if timing.utilisation is None:
        raise NotMeasurable("NVML is not there: no NVIDIA GPU")
    seen = timing.utilisation
    return Figure(f"GPU {seen.gpu_percent:.0f} %, {seen.temperature_c:.0f} °C", holds=True, timings=(timing,))


MEASURES: dict[type[Any], Callable[[Any, Study], Figure]] = {
    schema.Weights: weights,
    schema.Shards: shards,
    schema.SameTraining: same_training,
    schema.Parameters: parameters,
    schema.Seconds: seconds,
    schema.TimeRatio: time_ratio,
    schema.GainRatio: gain_ratio,
    schema.MemoryRatio: memory_ratio,
    schema.Memory: memory,
    schema.FastestWithin: fastest_within,
    schema.Compilation: compilation,
    schema.BreakEven: break_even,
    schema.GraphBreaks: graph_breaks,
    schema.Outcome: outcome,
    schema.Accuracy: accuracy,
    schema.LearnsAlike: learns_alike,
    schema.LossesFall: losses_fall,
    schema.LoadingTime: loading_time,
    schema.BatchesHeld: batches_held,
    schema.LoaderFailures: loader_failures,
    schema.Telemetry: telemetry,
}


def _listed(samples: list[int]) -> str:
    shown = " ".join(map(str, samples[:8]))
    return f"{shown} ..." if len(samples) > 8 else shown


def _median_s(timing: Timing) -> float:
    return statistics.median(timing.step_ms) / 1000


def _time_s(timing: Timing, run: str, measure: schema.TimeRatio, study: Study) -> float:
    if measure.of == "step":
        return _median_s(timing)
    epoch = _median_s(timing) * study.steps_per_epoch(run)
    return epoch if measure.of == "epoch" else measure.epochs * epoch + (timing.compile_s or 0.0)


def _compile_s(timing: Timing) -> float:
    if timing.compile_s is None:
        raise NotMeasurable(f"{timing.run} was not compiled, or this torch keeps no account of it")
    return timing.compile_s


def _not_the_same(runs: Sequence[str], study: Study) -> str | None:
    different = [pair for run in runs if run in study.params.configs and (pair := study.verdict(run))]
    texts = [f"{p.right} is not the same training ({p.cause})" for p in different if p.verdict == "different"]
    return "; ".join(texts) or None
