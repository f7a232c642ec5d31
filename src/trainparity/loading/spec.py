"""What the parent and the measuring process tell each other, as files."""

from pathlib import Path
from typing import Literal

from trainparity.params import Configuration, Loader, Train, Workload
from trainparity.placement import Placement
from trainparity.records.base import Record
from trainparity.records.loading import LoaderFigures, LoaderMeasurement

Mode = Literal["training", "loading"]


class MeasurementSpec(Record):
    """Everything that the measuring process needs to know."""

    mode: Mode
    workload: Workload
    train: Train
    configuration: Configuration
    """Its loader is what is measured."""
    placement: Placement
    data: Path
    """Folder that `prepare` wrote."""
    warmup: int
    """Steps that are not timed, the first included."""
    batches: int
    """Steps that are."""
    result: Path
    """Where the `LoaderMeasurement` goes."""


def measurement(
    mode: Mode,
    loader: Loader,
    *,
    figures: LoaderFigures | None = None,
    failed: str | None = None,
    skipped: str | None = None,
) -> LoaderMeasurement:
    """Make the record of one combination from its figures, or from why there are none."""
    return LoaderMeasurement(
        mode=mode,
        workers=loader.workers,
        start_method=loader.start_method,
        prefetch_factor=loader.prefetch_factor if loader.workers else None,
        pin_memory=loader.pin_memory,
        status="ok" if figures else "failed" if failed else "skipped",
        reason=failed or skipped,
        figures=figures,
    )
