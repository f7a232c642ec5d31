"""Measures of loading batches."""

from trainparity.claims import quantities
from trainparity.claims.measures.figure import Figure
from trainparity.claims.study import NotMeasurable, Study


def loading_time(measure: quantities.LoadingTime, study: Study) -> Figure:
    """Divide an epoch's time with so many workers by that with others."""
    ours, theirs = study.loading(measure.workers), study.loading(measure.than)
    assert ours.figures and theirs.figures
    ratio = ours.figures.epoch_s / theirs.figures.epoch_s
    return Figure(f"{ratio:.2f}x; {ours.sentence}; {theirs.sentence}", value=ratio)


def batches_held(measure: quantities.BatchesHeld, study: Study) -> Figure:
    """Count the batches in shared memory."""
    measured = study.loading(measure.workers, measure.prefetch_factor)
    assert measured.figures
    held = measured.figures.memory.batches_held
    if held is None:
        raise NotMeasurable("this system does not show what lies in shared memory")
    return Figure(f"{held:.1f} with {measure.workers} workers x {measure.prefetch_factor}", value=held)


def loader_failures(measure: quantities.LoaderFailures, study: Study) -> Figure:
    """Count failed loaders; the run that had them went on without workers."""
    timing = study.measured(measure.run)
    return Figure(f"{timing.loader_failures} of {timing.world_size} loaders failed", value=timing.loader_failures)
