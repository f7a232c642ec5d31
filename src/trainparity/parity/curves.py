"""Whole-run parity: do two recipes learn alike, though no step of theirs can be equal?

For mixed precision, BatchNorm under DDP, other batch sizes and other devices. The verdicts are `consistent` and
`drifted`, never `equivalent`: they are about learning curves over seeds, not about one training.
"""

import itertools
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from trainparity.errors import UserError
from trainparity.parity.one_run import recordings
from trainparity.records.base import INFINITE, RecordError, read_csv, refuse_endless
from trainparity.records.curves import CurveResult
from trainparity.records.run import Status

POINTS = 10
"""Equal parts that a run's curve is averaged over; the last one is the final loss."""

LEVEL = 0.05
"""Chance of calling curves of one recipe `drifted`."""

POWER = 0.8
_MOST = 5000
"""Splits of the runs that are tried; beyond so many, a random choice of them."""

Curves = np.ndarray
"""Losses by seed and part of the run: float64 [n, POINTS]."""


def judge_curves(left: Sequence[Sequence[float]], right: Sequence[Sequence[float]]) -> CurveResult:
    """Test whether two sets of learning curves come from one distribution.

    An exact permutation test (Pitman, 1937; Phipson and Smyth, 2010) with the largest difference of means over
    the parts of the run, in units of the spread over seeds, as statistic: it needs no normal distribution and
    corrects for looking at many parts. The power is found by simulation: the shift, in standard deviations over
    seeds, that these numbers of runs would have found with a probability of 0.8.

    Args:
        left: The reference's losses, one run a seed.
        right: The other recipe's.
    """
    result = CurveResult(verdict="cannot judge", runs=[len(left), len(right)], level=LEVEL)
    if math.comb(len(left) + len(right), len(left)) * LEVEL < 2:
        reason = f"{len(left)} and {len(right)} runs cannot show a difference at a level of {LEVEL}; four of each can"
        return result.model_copy(update={"reason": reason})
    ours, theirs = (np.array([_parts(curve) for curve in curves]) for curves in (left, right))
    if not np.isfinite(ours).all():
        return result.model_copy(update={"reason": "a run of the reference diverged"})
    finals = {"final": [float(ours[:, -1].mean()), float(theirs[:, -1].mean())]}
    if diverged := int((~np.isfinite(theirs)).any(1).sum()):
        reason = f"{diverged} of {len(theirs)} runs diverged"
        return result.model_copy(update={"verdict": "drifted", "reason": reason, "p_value": 0.0})
    splits = _splits(len(ours), len(theirs))
    # Numbers beyond 1e154 have no squares, and the test is one of ratios.
    scale = float(max(np.abs(ours).max(), np.abs(theirs).max())) or 1.0
    ours, theirs = ours / scale, theirs / scale
    p_value, statistic = _test(np.concatenate([ours, theirs]), splits)
    return result.model_copy(
        update={
            **finals,
            "verdict": "drifted" if p_value < LEVEL else "consistent",
            "losses": [len(curves[0]) for curves in (left, right)],
            "p_value": p_value,
            "statistic": statistic,
            "spread": float(ours[:, -1].std(ddof=1)) * scale,
            "detectable": _detectable(ours, len(theirs), splits),
        }
    )


def judge_runs(left: Sequence[Path], right: Sequence[Path]) -> CurveResult:
    """Judge two recipes by the folders of their runs, one run a seed; `left` are the reference's.

    A run of the pipeline that did not train gives `failed` or `skipped`; one without a curve gives `cannot judge`.

    Raises:
        UserError: a run is there twice, or a copy of it.
    """
    empty = CurveResult(verdict="cannot judge", runs=[len(left), len(right)], level=LEVEL)
    _refuse_twice([*left, *right])
    try:
        for folder in (*left, *right):
            path = folder / "status.json"
            refuse_endless(path)
            if path.exists() and (status := Status.read(path)).status != "trained":
                reason = f"{folder}: {status.ending}"
                return empty.model_copy(update={"verdict": status.status, "reason": reason})
        ours, theirs = (_read_curves(folders) for folders in (left, right))
    except RecordError as error:
        return empty.model_copy(update={"reason": str(error)})
    return judge_curves(ours, theirs)


def _refuse_twice(folders: Sequence[Path]) -> None:
    """Stop where a run would count as two seeds, or as one of both recipes.

    Raises:
        UserError: names the run.
    """
    seen: dict[Path | str, Path] = {}
    for folder in folders:
        known: list[Path | str] = [folder.resolve(), *recordings(folder)]
        if other := next((seen[key] for key in known if key in seen), None):
            raise UserError(
                f"{folder}: the run of {other} again; each must be a run of its own, and have a seed of its own"
            )
        seen |= dict.fromkeys(known, folder)


def _read_curves(folders: Sequence[Path]) -> list[list[float]]:
    """Read the curves of a recipe's runs.

    Raises:
        RecordError: a run has none, or a part of one.
    """
    curves = [read_curve(folder) for folder in folders]
    shortest, longest = (chosen(range(len(curves)), key=lambda at: len(curves[at])) for chosen in (min, max))
    if len(curves[shortest]) < len(curves[longest]):
        raise RecordError(
            f"{folders[shortest]}: {len(curves[shortest])} losses, and {len(curves[longest])} in {folders[longest]}: "
            "runs of one recipe must be equally long"
        )
    return curves


def read_curve(folder: Path) -> list[float]:
    """Read a run's losses in the order of training: `loss.csv` of a state folder of the pipeline, or a Recorder's
    `curve.csv`.

    Raises:
        RecordError: there are none.
    """
    for path in (folder / "loss.csv", folder / "curve.csv"):
        if path.exists():
            break
    else:
        raise RecordError(f"{folder}: holds no loss.csv or curve.csv; a Recorder writes one after log(loss=...)")
    losses = [value for value in read_csv(path, _loss) if value is not None]
    if len(losses) < POINTS:
        raise RecordError(f"{path}: {len(losses)} losses; a curve needs at least {POINTS}")
    return losses


def _loss(row: dict[str, str]) -> float | None:
    """Return a row's loss; None where it is of something else that was logged."""
    if not row.get("name", "loss"):  # as of a file that ends within a row
        raise ValueError("the name is empty")
    return float(row.get("loss") or row["value"]) if row.get("name", "loss") == "loss" else None


def _parts(curve: Sequence[float]) -> list[float]:
    with np.errstate(over="ignore"):  # infinite: it diverged
        return [float(np.mean(part)) for part in np.array_split(np.asarray(curve, dtype=np.float64), POINTS)]


def _splits(first: int, second: int) -> np.ndarray:
    """Return which runs are put on the left, the true split first: bool [splits, runs]."""
    total = first + second
    if math.comb(total, first) <= _MOST:
        chosen = list(itertools.combinations(range(total), first))
    else:
        generator = np.random.default_rng(0)
        drawn = (sorted(generator.permutation(total)[:first].tolist()) for _ in range(_MOST))
        chosen = [tuple(range(first)), *(tuple(split) for split in drawn)]
    masks = np.zeros((len(chosen), total), dtype=bool)
    for mask, split in zip(masks, chosen, strict=True):
        mask[list(split)] = True
    return masks


def _test(curves: Curves, splits: np.ndarray) -> tuple[float, float]:
    """Return the p-value of the first split among all, and its statistic."""
    left, right = splits.astype(float), (~splits).astype(float)
    n, m = left.sum(1, keepdims=True), right.sum(1, keepdims=True)
    means = left @ curves / n, right @ curves / m
    squares = left @ curves**2 / n - means[0] ** 2, right @ curves**2 / m - means[1] ** 2
    pooled = np.sqrt(np.maximum((n * squares[0] + m * squares[1]) / (n + m - 2), 0)) + 1e-12 * np.abs(curves).max()
    apart = np.abs(means[0] - means[1])
    # Without any spread over seeds, equal means are equal, and others are as far apart as can be.
    statistics = np.divide(apart, pooled, out=np.where(apart > 0, INFINITE, 0.0), where=pooled > 0).max(1)
    # Splits that mirror each other are equal but for rounding.
    return float((statistics >= statistics[0] * (1 - 1e-9)).mean()), float(statistics[0])


def _detectable(curves: Curves, second: int, splits: np.ndarray, trials: int = 100) -> float | None:
    """Return the smallest shift, in standard deviations over seeds, that is found with a probability of `POWER`."""
    generator = np.random.default_rng(0)
    residuals, spread = curves - curves.mean(0), curves.std(0, ddof=1)
    for shift in np.arange(0.5, 8.01, 0.5):
        found = 0
        for _ in range(trials):
            drawn = residuals[generator.integers(len(curves), size=len(curves) + second)]
            # Few residuals drawn anew repeat; noise of the same spread makes them runs of their own.
            drawn = 0.5**0.5 * (drawn + spread * generator.standard_normal((len(drawn), 1)))
            drawn[len(curves) :] += shift * spread
            found += _test(drawn, splits)[0] < LEVEL
        if found >= POWER * trials:
            return float(shift)
    return None
