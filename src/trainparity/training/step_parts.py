"""Where a step's time goes: a few more steps after the timed ones, in which the device is waited for at each border."""

import statistics
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import perf_counter
from typing import Any

import torch

from trainparity.measure.clocks import synchronise
from trainparity.records.timing import StepParts
from trainparity.strategies import Strategy
from trainparity.training.lane import Lane

_STEPS = 5
"""Made after all others, so that no border lies within a timed step."""


def num_steps(strategy: Strategy) -> int:
    """Return how many steps `measure_parts` makes."""
    return _STEPS * (2 if strategy.reduces_in_backward else 1)


def measure_parts(lane: Lane, progress: Callable[[], None]) -> StepParts:
    """Make `num_steps` more steps; every rank must call it. Returns medians over steps of the mean over ranks.

    Where gradients are averaged in the backward pass, every other step leaves that out: from there on the ranks'
    weights part, and the training is of no other use.
    """
    trainer, strategy = lane.trainer, lane.trainer.strategy
    found, alone = [], []
    with _backward_passes(trainer.execution.device) as passes:
        for _ in range(_STEPS):
            found.append(_parts(lane, passes))
            progress()
            if strategy.reduces_in_backward:
                with strategy.accumulating(trainer.model):
                    alone.append(_parts(lane, passes))
                progress()
    data, forward, backward, optimizer = _medians(strategy, found)
    reduction = max(backward - _medians(strategy, alone)[2], 0.0) if alone else None
    return StepParts(
        data_ms=data,
        forward_ms=forward,
        backward_ms=backward - (reduction or 0.0),
        reduction_ms=reduction,
        optimizer_ms=optimizer,
    )


def _parts(lane: Lane, passes: list[tuple[float, float]]) -> list[float]:
    """Make a step; return its seconds for data, forward and backward passes, and the optimizer."""
    passes.clear()
    lane.step()
    after = perf_counter() - passes[-1][1]  # unscaling, clipping and the optimizer
    backward = sum(ended - started for started, ended in passes)
    waited, whole = lane.waits[-1], lane.times[-1]
    return [waited, max(whole - waited - backward - after, 0.0), backward, after]


def _medians(strategy: Strategy, seconds: list[list[float]]) -> list[float]:
    mean = strategy.gather(torch.tensor(seconds, dtype=torch.float64)).mean(0) * 1e3
    return [statistics.median(part) for part in mean.T.tolist()]


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
