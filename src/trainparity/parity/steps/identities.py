"""Which samples a step saw, as far as a trace names them."""

from collections import Counter

import torch

from trainparity.parity.recording.trace import Trace


def identities(trace: Trace, row: int) -> list[int]:
    """Return the samples of one traced step, each as often as it came, sorted."""
    return [int(value) for value in trace.arrays["sample_ids"][row].tolist() if value]


def without(left: list[int], right: list[int]) -> list[int]:
    """Return what is in `left` more often than in `right`, as often."""
    return list((Counter(left) - Counter(right)).elements())


def other_samples(left: Trace, right: Trace, row: int) -> list[int]:
    """Return those samples of `right` at one traced step that `left` did not see there."""
    return without(identities(right, row), identities(left, row))


def over_the_run(left: Trace, right: Trace) -> tuple[set[int], set[int]]:
    """Return the samples of all traced steps of both runs."""
    ours, theirs = (trace.arrays["sample_ids"].flatten().tolist() for trace in (left, right))
    return {int(i) for i in ours if i}, {int(i) for i in theirs if i}


def same_over_the_run(left: Trace, right: Trace) -> bool:
    """Tell whether both runs see the same samples, each as often, in any order."""
    ours, theirs = (trace.arrays["sample_ids"].flatten().sort().values for trace in (left, right))
    return torch.equal(ours[ours != 0], theirs[theirs != 0])
