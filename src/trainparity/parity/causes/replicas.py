"""Ranks that train one replica together, as in tensor parallelism, and what each of them is given."""

import torch

from trainparity.parity.causes.finding import Finding, rule
from trainparity.parity.recording.trace import Trace
from trainparity.parity.steps.difference import Difference


def _apart(trace: Trace, row: int) -> list[int]:
    """Return the ranks that see other samples than the first rank of their group."""
    by_rank = trace.arrays["rank/samples"][row]
    return [rank for rank, first in enumerate(trace.layout.groups) if not torch.equal(by_rank[rank], by_rank[first])]


def _groups_differ(difference: Difference) -> bool:
    """Tell whether ranks of a group see other samples, and train otherwise: a plan may cut what the model is given."""
    if not any(_apart(trace, difference.row) for trace in difference.traces):
        return False
    return not (difference.same_precision and _seen_together(difference))


def _seen_together(difference: Difference) -> bool:
    """Tell whether the ranks' samples are together those of the other run, and make the same gradient."""
    hashes = difference.pair("samples")
    agree = difference.distance("gradient") <= difference.margin * difference.noise("gradient")
    return hashes is not None and torch.equal(*hashes) and agree


@rule(
    "samples",
    "inputs",
    proof="ranks that compute parts of the same tensors see different samples",
    advice="give all ranks of a tensor-parallel group the same samples: shard by the group's number, not by the rank's",
    differs=_groups_differ,
)
def apart_in_a_group(difference: Difference) -> Finding | None:
    """Ranks of one group are given different samples, so they compute parts of different tensors."""
    for side, trace in zip(difference.runs, difference.traces, strict=True):
        if apart := _apart(trace, difference.row):
            first, groups = trace.layout.groups[apart[0]], trace.layout.groups
            return Finding(
                f"in {side} ranks {first} and {apart[0]} train one replica together and see different samples",
                {"run": side, "first_rank_of_each_group": [float(rank) for rank in groups], "ranks_apart": len(apart)},
            )
    return None
