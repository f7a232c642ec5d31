"""Measures of what became of a run: its status, its scores, its GPU."""

from trainparity.claims import quantities
from trainparity.claims.measures.figure import Figure
from trainparity.claims.study import NotMeasurable, Study


def outcome(measure: quantities.Outcome, study: Study) -> Figure:
    """Say whether a run trained."""
    status = study.status(measure.run)
    if status.status == "skipped":
        raise NotMeasurable(status.ending)
    return Figure(status.outcome, holds=status.status == measure.status)


def accuracy(measure: quantities.Accuracy, study: Study) -> Figure:
    """Compare accuracy, precision and recall on held-out samples."""
    ours, theirs = study.evaluation(measure.run), study.evaluation(measure.over)
    scores = [(name, getattr(ours, name), getattr(theirs, name)) for name in ("accuracy", "precision", "recall")]
    text = ", ".join(f"{name} {theirs:.3f} -> {ours:.3f}" for name, ours, theirs in scores)
    return Figure(f"{text} on {ours.samples} samples", value=max(abs(a - b) for _, a, b in scores))


def telemetry(measure: quantities.Telemetry, study: Study) -> Figure:
    """Return what NVML saw."""
    timing = study.timing(measure.run)
    if timing.utilisation is None:
        raise NotMeasurable("NVML is not there: no NVIDIA GPU")
    seen = timing.utilisation
    return Figure(f"GPU {seen.gpu_percent:.0f} %, {seen.temperature_c:.0f} °C", holds=True, timings=(timing,))
