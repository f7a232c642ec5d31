"""Shards that ranks scale, each by a number of its own: clipped by local norms, or divided by local counts."""

import torch
from torch import Tensor

from trainparity.parity.causes.clipping import GROWN
from trainparity.parity.causes.finding import Finding, listed, rule
from trainparity.parity.recording.trace import Trace
from trainparity.parity.steps.difference import Difference
from trainparity.parity.steps.fitting import fit


@rule(
    "clipping",
    "clipping",
    proof="ranks scale their shards by different numbers, which leaves those that they shorten of one length",
    advice="clip by the norm of the whole gradient: torch.nn.utils.clip_grad_norm_ on the sharded parameters",
)
def clipped_apart(difference: Difference) -> Finding | None:
    """Shards that each rank scales by its own number after backward: clipped by local norms."""
    return _scaled_by_rank(difference, clipped=True)


@rule(
    "loss-normalisation",
    "reduction",
    proof="ranks scale their shards by different numbers, and clip the whole gradient after that, or leave them of "
    "different lengths",
    advice="sum the count of samples or tokens over all ranks (all_reduce) before gradients are divided by it",
)
def scaled_apart(difference: Difference) -> Finding | None:
    """Shards that each rank scales by its own number after backward, as by the count of its own tokens."""
    return _scaled_by_rank(difference, clipped=False)


def _scaled_by_rank(difference: Difference, *, clipped: bool) -> Finding | None:
    """Find the one run whose ranks scale their shards by different numbers, if these are of a limit, or are not."""
    apart = []
    for trace in difference.traces:
        kept = _kept_by_rank(trace, difference.row)
        if kept and max(kept) - min(kept) > _ALIKE * max(kept):
            apart.append((trace, kept))
    if len(apart) != 1 or _is_clipped(*apart[0], difference.row) != clipped:
        return None
    ((_, factors_by_rank),) = apart
    said = f"each rank scales its shard of the gradient by its own number: {listed(factors_by_rank)}"
    return Finding(said, {"kept_by_rank": factors_by_rank})


def _kept_by_rank(trace: Trace, row: int) -> list[float]:
    """Return what each rank multiplies its shards with after backward; empty where it is no number, or not known."""
    pairs = zip(trace.arrays["rank/after"][row], trace.arrays["rank/total"][row], strict=True)
    fits = [fit(after, total) for after, total in pairs if after.abs().sum() > 0]
    kept = [factor for factor, rest in fits if rest < _ALIKE]
    return kept if len(kept) == trace.layout.world_size else []


def _is_clipped(trace: Trace, factors: list[float], row: int) -> bool:
    """Tell whether such numbers may come of a limit: it leaves what it cuts of one length, and makes nothing longer."""
    if max(factors) > 1 + GROWN:
        return False
    steps = [kept for each in range(len(trace.layout.steps)) if (kept := _kept_by_rank(trace, each))]
    if cut := [lengths for each in range(len(trace.layout.steps)) if len(lengths := _cut(trace, each)) > 1]:
        # Of the first step it is not always known which shards the optimizer holds.
        return all(lengths.max() <= _ONE_LENGTH * lengths.min() for lengths in (cut[1:] or cut))
    # Of one rank alone the length in one step says nothing; over steps a limit leaves one length, and no same part.
    if len(alone := _cut_alone(trace)) > 1:
        return bool(alone.max() <= _ONE_LENGTH * alone.min())
    always = len(steps) > 1 and all(torch.allclose(torch.tensor(kept), torch.tensor(factors)) for kept in steps)
    return not int(trace.arrays["clip/calls"][row]) and not always


def _cut_alone(trace: Trace) -> Tensor:
    """Return the length to which one rank shortens its shards, in each step but the first one recorded: float64 [n]."""
    return torch.cat([_cut(trace, row) for row in range(1, len(trace.layout.steps))] or [torch.zeros(0)])


def _cut(trace: Trace, row: int) -> Tensor:
    """Return the lengths to which ranks shorten their shards in a step, of those that do: float64 [n]."""
    kept = torch.tensor(_kept_by_rank(trace, row), dtype=torch.float64)
    made = trace.arrays["rank/left"][row].double()
    if not len(kept) or not made.any():
        return kept[:0]
    left = made[:, int((made > 0).sum(1).max()) - 1]  # after the step's last pass
    return (kept * left)[(kept < 1 - GROWN)]


_ALIKE = 1e-3
"""Part by which numbers may differ that rounding alone tells apart."""

_ONE_LENGTH = 1.01
"""Times by which shards that were cut at one limit may differ in length, as they are rounded."""
