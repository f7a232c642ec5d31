"""The weights that runs end with: which are known, and where a loop has written into them after the last step."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from trainparity.parity.recording.trace import Trace
from trainparity.records.verdict import Verdict


class End(NamedTuple):
    """The weights that a run ends with."""

    sketch: Tensor
    """float64 [P, S]"""
    digest: Tensor
    """int64 [P]"""


def known_ends(left: Trace, right: Trace) -> list[End | None]:
    """Return how two runs end: where one end alone is known both by the last step, behind which a loop may write."""
    both = all(map(_is_known, (left, right)))
    return [_end(trace) if both else _last(trace) for trace in (left, right)]


def written_beside(verdict: Verdict, left: Trace, right: Trace) -> str | None:
    """Say that one run's end alone is known, where its loop has written into the weights after the last step."""
    if _is_known(left) == _is_known(right):
        return None
    trace, one, other = (left, verdict.left, verdict.right) if _is_known(left) else (right, verdict.right, verdict.left)
    if tail(trace) or torch.equal(trace.arrays["end/digest"], trace.arrays["weight/digest"][-1]):
        return None
    return (
        f"NOT compared: what {one} has written into the weights after its last step, as those of {other} are not there "
        "whole when it ends"
    )


def _is_known(trace: Trace) -> bool:
    return "end/digest" in trace.arrays


def _last(trace: Trace) -> End | None:
    """Return what the last step has left; None where that is not traced."""
    arrays = trace.arrays
    return None if tail(trace) else End(arrays["weight/sketch"][-1], arrays["weight/digest"][-1])


def _end(trace: Trace) -> End | None:
    """Return how a run ends; None where that is not known, as where ranks hold parts of the weights."""
    if not _is_known(trace):
        return _last(trace)
    end = End(trace.arrays["end/sketch"], trace.arrays["end/digest"])
    # Those that the run began with are none that it has trained: the loop has put them back.
    return None if tail(trace) and not moved_by_training(trace).any() else end


def moved_by_training(trace: Trace) -> Tensor:
    """Return which weights a run ends with that are not those that it began with: bool [P].

    Others, as those of a frozen layer, are none of the training.
    """
    end = trace.arrays.get("end/sketch", trace.arrays["weight/sketch"][-1])
    return (end != trace.arrays["start/sketch"][0]).any(1)


def tail(trace: Trace) -> str:
    """Name the steps after the last one that is traced; empty: there are none."""
    last, made = trace.layout.steps[-1], trace.layout.made
    return f"the steps after step {last}, to step {made - 1}" if last < made - 1 else ""


def ends_of(twins: Sequence[Trace], reference: Trace) -> list[End]:
    """Return how those twins end that made as many steps as the reference."""
    ends = (_end(twin) for twin in twins if twin.layout.made == reference.layout.made)
    return [end for end in ends if end]
