"""`runs/loading.json`: what loading batches costs."""

from typing import Literal

from trainparity.records.base import Record
from trainparity.records.numbers import counted, number


class LoaderMemory(Record):
    """What loading holds when the workers have loaded all that they may ahead; null where the system hides it."""

    workers_rss_mib: float
    """Resident memory of all processes that loading started; pages that several share count in each."""
    workers_pss_mib: float | None
    """The same with shared pages split among their processes (Linux)."""
    shared_mib: float | None
    """Shared memory: the batches that wait and, where workers are not forked, the dataset."""
    batch_mib: float
    batches_held: float | None
    """Batches in shared memory, the one in use included."""


class LoaderFigures(Record):
    """What one way to load batches costs, measured in a process of its own."""

    batches: int
    """Timed ones, after the warm-up."""
    first_batch_s: float
    """From asking for the first batch until it is there: worker processes start."""
    step_ms: float
    """Median time from asking for a batch until the training step on it, if there is one, is done."""
    wait_ms: float
    """Median time from asking for a batch until it is there; of `training` with its noise, drawn in this process."""
    epoch_s: float
    """The timed steps together, scaled to one epoch."""
    epoch_wait_s: float
    """The part of it spent waiting for batches."""
    memory: LoaderMemory
    compared: int
    """Batches after the timed ones that were compared with the same ones sliced in memory."""
    identical: int
    """Those of them that have the same bits."""


class LoaderMeasurement(Record):
    """One combination of loader settings."""

    mode: Literal["training", "loading"]
    workers: int
    start_method: str | None
    """Null without workers, as is `prefetch_factor`."""
    prefetch_factor: int | None
    pin_memory: bool
    status: Literal["ok", "failed", "skipped"]
    reason: str | None = None
    """Why it failed or was skipped."""
    figures: LoaderFigures | None = None
    """Null unless `ok`."""

    @property
    def sentence(self) -> str:
        """Say it in one line."""
        how = counted(self.workers, "worker")
        if self.workers:
            how += f" by {self.start_method}, {self.prefetch_factor} batches ahead each"
        how += ", pinned" if self.pin_memory else ""
        if self.figures is None:
            return f"{self.mode}, {how}: {self.status}: {self.reason}"
        figures, memory = self.figures, self.figures.memory.workers_pss_mib or self.figures.memory.workers_rss_mib
        return (
            f"{self.mode}, {how}: {number(figures.epoch_s)} s an epoch, {number(figures.epoch_wait_s)} s of it waiting"
            f"; first batch after {number(figures.first_batch_s)} s; workers hold {memory:.0f} MiB"
        )


class LoadingReport(Record):
    """All combinations of params.yaml's `loading`."""

    date: str
    """ISO 8601, UTC, to the second."""
    fingerprint: str
    """Of the environment."""
    machine: str
    """The device that trained, or the processor."""
    cores: int
    torch: str
    workload: str
    dataset: str
    global_batch_size: int
    batches_per_epoch: int
    measurements: list[LoaderMeasurement]
