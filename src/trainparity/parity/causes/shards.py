"""Shards that ranks scale, each by a number of its own: clipped by local norms, or divided by local counts."""

import torch

from trainparity.parity.causes.clipping import GROWN
from trainparity.parity.causes.finding import Finding, listed, rule
from trainparity.parity.difference import Difference
from trainparity.parity.fitting import fit
from trainparity.parity.recording.trace import Trace


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
        pairs = zip(trace.arrays["rank/after"][difference.row], trace.arrays["rank/total"][difference.row], strict=True)
        factors = [fit(after, total) for after, total in pairs if after.abs().sum() > 0]
        kept = [factor for factor, rest in factors if rest < 1e-3]
        if len(kept) == trace.layout.world_size and max(kept) - min(kept) > 1e-3 * max(kept):
            apart.append((trace, kept))
    if len(apart) != 1 or _is_clipped(*apart[0], difference.row) != clipped:
        return None
    ((_, factors_by_rank),) = apart
    said = f"each rank scales its shard of the gradient by its own number: {listed(factors_by_rank)}"
    return Finding(said, {"kept_by_rank": factors_by_rank})


def _is_clipped(trace: Trace, factors: list[float], row: int) -> bool:
    """Tell whether such numbers may come of a limit: it leaves what it cuts of one length, and makes nothing longer."""
    lengths = torch.linalg.vector_norm(trace.arrays["rank/total"][row], dim=-1)
    cut = lengths[[factor < max(factors) or factor < 1 - GROWN for factor in factors]]
    alike = bool(cut.max() <= _LENGTH_OF_A_SKETCH * cut.min())
    return alike and max(factors) <= 1 + GROWN and not int(trace.arrays["clip/calls"][row])


_LENGTH_OF_A_SKETCH = 1.3
"""Times by which sketches of vectors of one length may differ in length."""
