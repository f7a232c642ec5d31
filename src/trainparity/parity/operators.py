"""The first operator that returns something else, told from rounding by twins."""

from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from pathlib import Path

import torch

from trainparity.parity.recording.trace import Trace
from trainparity.records.base import INFINITE
from trainparity.records.operators import FirstOperator, OperatorCall, OperatorLog

_LEAST_FLOOR = 2.0**-22
"""Relative: a few roundings of fp32, where no twin differs."""
_ANOTHER = 0.5
"""Distance of twins from which on they make another thing of it, as of a LayerNorm's rows in another order, or nothing
but rounding: that says nothing of operators behind it."""
_SHOWN = 5
"""Operators of one run only that are told."""


def cut_alike(left: Path, right: Path) -> bool:
    """Tell whether two recorded runs cut their batches alike, so that their operators have equal sizes."""
    rows = [Trace.load(folder).arrays["rank/rows"] for folder in (left, right)]
    return torch.equal(*(one[: min(map(len, rows))] for one in rows))


def first_operator(
    left: OperatorLog, right: OperatorLog, twins: Sequence[OperatorLog], margin: float
) -> FirstOperator | None:
    """Find the first operator that both runs have and whose results are further apart than `margin` times the floor.

    Args:
        left: The reference's operators of a step.
        right: The other run's, which cuts the batch alike.
        twins: Those of the reference's twins; of one with other operators nothing is learnt.
        margin: As of a verdict.
    """
    alike = [twin.calls for twin in twins if list(map(_key, twin.calls)) == list(map(_key, left.calls))]
    floor = _LEAST_FLOOR
    only: tuple[list[str], list[str]] = ([], [])
    for i, j in _aligned(left.calls, right.calls):
        if i is None or j is None:
            for calls, number, told in ((left.calls, i, only[0]), (right.calls, j, only[1])):
                if number is not None:
                    told.append(f"{calls[number].operator} at {calls[number].place}")
            continue
        ours, theirs = left.calls[i], right.calls[j]
        own = max([floor, *(_distance(ours, twin[i]) for twin in alike)])
        floor = own if own < _ANOTHER else floor
        if (distance := _distance(ours, theirs)) > margin * own:
            return FirstOperator(
                operator=ours.operator,
                left=ours.place,
                right=theirs.place,
                step=left.step,
                distance=distance,
                floor=own,
                only_left=only[0][-_SHOWN:],
                only_right=only[1][-_SHOWN:],
            )
    return None


def _aligned(left: Sequence[OperatorCall], right: Sequence[OperatorCall]) -> Iterator[tuple[int | None, int | None]]:
    """Yield the numbers of operators that correspond to each other, and None beside one that the other run lacks."""
    ours, theirs = list(map(_key, left)), list(map(_key, right))
    for kind, i, stop_i, j, stop_j in SequenceMatcher(None, ours, theirs, autojunk=False).get_opcodes():
        if kind == "equal":
            yield from zip(range(i, stop_i), range(j, stop_j), strict=True)
        else:
            yield from ((number, None) for number in range(i, stop_i))
            yield from ((None, number) for number in range(j, stop_j))


def _key(call: OperatorCall) -> tuple[str, tuple[int, ...]]:
    return call.operator, tuple(call.shape)


def _distance(ours: OperatorCall, theirs: OperatorCall) -> float:
    """Return the relative L2 distance of two results."""
    if not ours.sketch or not theirs.sketch:
        return 0.0 if ours.sketch == theirs.sketch else INFINITE
    a, b = (torch.tensor(call.sketch, dtype=torch.float64) for call in (ours, theirs))
    scale = float(a.norm().clamp(min=b.norm()))
    return float((a - b).norm()) / scale if scale else 0.0
