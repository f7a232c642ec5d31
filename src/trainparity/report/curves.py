"""The losses of a pipeline's runs, as far as a page draws them."""

import math
from collections.abc import Mapping
from itertools import accumulate
from typing import NamedTuple

from trainparity.records.base import significant
from trainparity.records.detail import Detail
from trainparity.report.artifacts import Artifacts, Run

_POINTS = 24_000
"""Points of all curves of a page together."""

Numbers = list[float | None]


class Curves(NamedTuple):
    """Losses by step; null where a run has none, or where it is not finite."""

    steps: list[int]
    references: dict[str, Numbers]
    """Losses by name of the run."""
    runs: dict[str, Numbers]
    """Losses by configuration."""
    differences: dict[str, Numbers]
    """Loss - its reference's, by configuration."""
    band: Numbers
    """Largest difference between a reference and its twins up to the step; empty if no twin's loss was recorded."""


def of(artifacts: Artifacts) -> Curves | None:
    """Return the losses of all trained runs, of long ones every n-th step; None if nothing trained."""
    references = {run.status.run: dict(run.losses) for run in artifacts.references.values() if run.losses}
    runs = {name: dict(run.losses) for name, run in artifacts.configurations.items() if run.losses}
    if not runs:
        return None
    every = sorted({step for losses in (*references.values(), *runs.values()) for step in losses})
    stride = -(-len(every) * (2 * len(runs) + len(references)) // _POINTS)
    steps = sorted({*every[::stride], every[-1]})
    band = _band(artifacts.details)
    return Curves(
        steps=steps,
        references={name: [_rounded(losses.get(step), 6) for step in steps] for name, losses in references.items()},
        runs={name: [_rounded(losses.get(step), 6) for step in steps] for name, losses in runs.items()},
        differences={
            name: _difference(losses, references.get(_reference(artifacts, name), {}), steps)
            for name, losses in runs.items()
        },
        band=[band.get(step) for step in steps] if band else [],
    )


def _reference(artifacts: Artifacts, name: str) -> str:
    run: Run = artifacts.references[artifacts.params.reference_of(name)]
    return run.status.run


def _difference(losses: Mapping[int, float], reference: Mapping[int, float], steps: list[int]) -> Numbers:
    return [_rounded(losses[s] - reference[s], 3) if s in losses and s in reference else None for s in steps]


def _band(details: Mapping[str, Detail]) -> dict[int, float]:
    """Return the largest difference between a reference and its twins up to each step, over all references."""
    widest: dict[int, float] = {}
    for detail in details.values():
        for fact in detail.facts:
            for step, value in zip(detail.steps, fact.band, strict=False) if fact.name == "loss" else ():
                widest[step] = max(widest.get(step, 0.0), value or 0.0)
    steps = sorted(widest)
    return dict(zip(steps, accumulate((widest[step] for step in steps), max), strict=True))


def _rounded(value: float | None, digits: int) -> float | None:
    """Round to so many significant digits; null of what is not finite."""
    return significant(value, digits) if value is not None and math.isfinite(value) else None
