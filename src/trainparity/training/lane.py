"""A training that is timed step by step, and that of the reference beside it."""

from collections.abc import Callable
from itertools import count
from time import perf_counter

import torch

from trainparity.measure.clocks import synchronise
from trainparity.params import Loader, Timing
from trainparity.strategies import Execution
from trainparity.training.loop import Trainer
from trainparity.training.spec import RunSpec


class Lane:
    """One of the trainings that take turns, with the time of each step."""

    def __init__(self, trainer: Trainer, loader: Loader, steps: int, num_threads: int) -> None:
        """Be ready for so many steps, each on so many intra-op threads."""
        self.trainer = trainer
        self.batches = trainer.batches(0, steps, loader)
        """Those of the steps not yet made."""
        self._numbers = count()
        self._num_threads = num_threads
        self.times: list[float] = []
        """Seconds of each step made, from before its data is fetched until the device is done."""
        self.waits: list[float] = []
        """Seconds of each step until its data was there."""

    def step(self) -> None:
        """Make the next optimizer step."""
        self._use_threads()
        started = perf_counter()
        micro_batches = next(self.batches)
        fetched = perf_counter()
        self.trainer.step(next(self._numbers), micro_batches)
        synchronise(self.trainer.execution.device)
        self.times.append(perf_counter() - started)
        self.waits.append(fetched - started)

    def train(self, steps: int, progress: Callable[[], None]) -> list[float]:
        """Make some steps; return their seconds."""
        for _ in range(steps):
            self.step()
            progress()
        return self.times[-steps:]

    def _use_threads(self) -> None:
        if torch.get_num_threads() != self._num_threads:
            torch.set_num_threads(self._num_threads)
            torch.ones(1 << 18).add_(1.0)  # the threads start here and not in the timed step


def reference_lane(spec: RunSpec, timing: Timing, trainer: Trainer) -> tuple[Lane | None, str | None]:
    """Return the reference of a run, warmed up, on rank 0; or None, and why it can't be timed if it should be."""
    if spec.beside is None:
        return None, None
    device = torch.device(spec.beside.placement.device)
    if spec.configuration.loader.workers:
        return None, "its worker processes would load batches ahead while the reference trains"
    if device.type == "cuda" and not torch.cuda.is_available():
        return None, "the reference runs on cuda, which this process can't use"
    if trainer.execution.rank:
        return None, None
    try:
        configuration = spec.beside.configuration
        reference = Trainer(
            trainer.workload.plain, trainer.dataset, spec.train, configuration, Execution(device=device)
        )
        steps = timing.warmup_steps + timing.steps
        lane = Lane(reference, configuration.loader, steps, spec.beside.placement.num_threads)
        lane.train(timing.warmup_steps, progress=lambda: None)
    except torch.OutOfMemoryError:
        return None, f"the reference does not fit on {device} beside it"
    return lane, None
