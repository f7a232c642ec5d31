"""Where a step's time goes: a few more steps after the timed ones, in which the device is waited for at each border."""

import statistics
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import perf_counter
from typing import Any

import torch

from trainparity.measure.clocks import synchronise
from trainparity.records.timing import StepParts
from trainparity.training.lane import Lane

STEPS = 5
"""Made after all others, so that no border lies within a timed step."""


def measure_parts(lane: Lane, progress: Callable[[], None]) -> StepParts:
    """Make `STEPS` more steps; every rank must call it. Returns medians over steps of the mean over ranks."""
    device, strategy = lane.trainer.execution.device, lane.trainer.strategy
    found = []
    with _backward_passes(device) as passes:
        for _ in range(STEPS):
            passes.clear()
            lane.step()
            after = perf_counter() - passes[-1][1]  # unscaling, clipping and the optimizer
            backward = sum(ended - started for started, ended in passes)
            waited, whole = lane.waits[-1], lane.times[-1]
            found.append([waited, max(whole - waited - backward - after, 0.0), backward, after])
            progress()
    mean = strategy.gather(torch.tensor(found, dtype=torch.float64)).mean(0) * 1e3
    data, forward, backward_ms, optimizer = (statistics.median(part) for part in mean.T.tolist())
    return StepParts(data_ms=data, forward_ms=forward, backward_ms=backward_ms, optimizer_ms=optimizer)


@contextmanager
def _backward_passes(device: torch.device) -> Iterator[list[tuple[float, float]]]:
    """Yield a list that gets the begin and the end of each call of `Tensor.backward`."""
    plain: Any = torch.Tensor.backward
    passes: list[tuple[float, float]] = []

    def timed(*arguments: Any, **keywords: Any) -> None:
        synchronise(device)
        started = perf_counter()
        plain(*arguments, **keywords)
        synchronise(device)
        passes.append((started, perf_counter()))

    torch.Tensor.backward = timed  # type: ignore[method-assign]
    try:
        yield passes
    finally:
        torch.Tensor.backward = plain  # type: ignore[method-assign]
