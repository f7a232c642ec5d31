"""What a page shows of two runs beside their verdict: distances by tensor and step, and what both recorded."""

from collections.abc import Sequence

import torch
from torch import Tensor

from trainparity.parity.noise.distance import ALL, KINDS, Compared, distances, names, norms
from trainparity.parity.noise.floor import Floor
from trainparity.parity.noise.of_two_runs import of_two_runs
from trainparity.parity.recording.trace import Trace, comparable
from trainparity.parity.steps.identities import other_samples
from trainparity.parity.worst import worst_tensors
from trainparity.records.base import INFINITE, significant
from trainparity.records.detail import COLUMNS, ROWS, Detail, Fact, Numbers, Strip

_FACTS = {
    "loss": "loss",
    "learning rate": "setting/lr",
    "gradient norm": "gradient_norm",
    "clipping limit": "clip/max_norm",
    "loss scale": "scale/value",
}
"""What is shown of a step's numbers, by the names of their arrays."""

_ABSENT = {"clipping limit": -1.0, "loss scale": 0.0}
"""How the recorder writes that there was none."""

_LARGEST = 10


def describe(left: Trace, right: Trace, floor: Floor, twins: Sequence[Trace]) -> Detail | None:
    """Return two runs tensor by tensor; None where they can't be compared so.

    Args:
        left: The run that `right` is compared with.
        right: The other run.
        floor: The noise floor of the reference.
        twins: Those that measured it, from which the bands of numbers come; none without.
    """
    if comparable(left.layout, right.layout) or not left.layout.steps:
        return None
    floor = of_two_runs(left, right, floor)
    same_modules = left.layout.activations == right.layout.activations
    kinds: list[Compared] = [*(["activation"] if same_modules else []), *KINDS]  # type: ignore[list-item]
    rows = _thinned(len(left.layout.steps))
    return Detail(
        left=left.layout.checksum,
        right=right.layout.checksum,
        strips=[_strip(left, right, floor, kind) for kind in kinds if len(names(left, kind)) > 1],
        worst=worst_tensors(left, right, floor, _LARGEST),
        steps=[left.layout.steps[row] for row in rows],
        facts=[
            *(fact for name in _FACTS if (fact := _fact(name, left, right, twins, rows))),
            *_samples_of_steps(left, right, rows),
        ],
        samples=_samples(left, right),
        environment=_environment(left, right),
    )


def _strip(left: Trace, right: Trace, floor: Floor, kind: Compared) -> Strip:
    """Return a kind of tensor, all of them together in the first row."""
    apart, noise = distances(left, right, kind).roll(1, 1), floor[kind].roll(1, 1)
    tensors = names(left, kind)
    return Strip(
        kind=kind,  # type: ignore[arg-type]
        judged=kind in KINDS,
        tensors=[ALL, *tensors[:-1]],
        steps=left.layout.steps,
        distance=[_numbers(row) for row in apart.T],
        floor=[_numbers(row) for row in noise.T],
        left_norm=_lengths(left, kind),
        right_norm=_lengths(right, kind),
    ).condensed(ROWS, COLUMNS)


def _lengths(trace: Trace, kind: Compared) -> list[Numbers]:
    """Return the norms of a kind by tensor and step, of all tensors together in the first row."""
    each = norms(trace, kind)
    whole = torch.linalg.vector_norm(each, dim=1, keepdim=True)
    return [_numbers(row, 4) for row in torch.cat([whole, each], dim=1).T]


def _thinned(length: int) -> list[int]:
    """Return the rows that a curve shows: all, or every n-th and the last."""
    stride = -(-length // (3 * COLUMNS))
    return sorted({*range(0, length, stride), length - 1})


def _fact(name: str, left: Trace, right: Trace, twins: Sequence[Trace], rows: list[int]) -> Fact | None:
    """Return a number of both runs at the chosen rows; None where neither recorded it."""
    ours, theirs, *others = (_of_step(trace, name)[rows] for trace in (left, right, *twins))
    if not (ours.isfinite() | theirs.isfinite()).any():
        return None
    band = _numbers(torch.stack([(other - ours).abs() for other in others]).amax(0)) if others else []
    return Fact(
        name=name,
        left=_numbers(ours, 6),
        right=_numbers(theirs, 6),
        difference=_numbers(theirs - ours),
        band=band,
    )


def _of_step(trace: Trace, name: str) -> Tensor:
    """Return a number of each step, of an option the largest over parameters: float64 [T], NaN where there is none.

    A loss that the loop did not hand over is that which backward began from: over micro-batches its sum, over ranks
    its mean.
    """
    array = trace.arrays.get(_FACTS[name])
    if name == "loss" and (array is None or not array.isfinite().any()) and "rank/loss" in trace.arrays:
        return trace.arrays["rank/loss"].double().mean(1)
    if array is None or not array.numel():
        return torch.full((len(trace.layout.steps),), torch.nan, dtype=torch.float64)
    values = array.double().reshape(len(array), -1)
    largest = values.nan_to_num(-torch.inf).amax(1)
    return largest.masked_fill((largest == _ABSENT.get(name, -torch.inf)) | largest.isneginf(), torch.nan)


def _samples(left: Trace, right: Trace) -> str | None:
    """Say whether both runs saw the same samples."""
    counts = [trace.arrays.get("num_samples") for trace in (left, right)]
    if any(count is None or not bool((count > 0).all()) for count in counts):
        return None
    other = (left.arrays["samples"] != right.arrays["samples"]).nonzero().flatten().tolist()
    steps = left.layout.steps
    if not other:
        return f"the same samples at each of {len(steps)} traced steps"
    return f"other samples at {len(other)} of {len(steps)} traced steps, first at step {steps[other[0]]}"


def _samples_of_steps(left: Trace, right: Trace, rows: list[int]) -> list[Fact]:
    """Return how many samples both runs saw at the chosen rows, and how many of right's are none of left's."""
    if _samples(left, right) is None:
        return []
    ours, theirs = (trace.arrays["num_samples"][rows].double() for trace in (left, right))
    differ = (left.arrays["samples"] != right.arrays["samples"])[rows]
    others = torch.zeros(len(rows))
    for place in differ.nonzero().flatten().tolist():
        others[place] = len(other_samples(left, right, rows[place]))
    others[differ & (theirs > right.arrays["sample_ids"].shape[1])] = torch.nan  # a trace names no more
    numbers = [_numbers(values, 9) for values in (ours, theirs, others)]
    return [Fact(name="samples", left=numbers[0], right=numbers[1], difference=numbers[2], band=[])]


def _environment(left: Trace, right: Trace) -> dict[str, tuple[str, str]]:
    ours, theirs = left.layout.environment, right.layout.environment
    return {name: (ours.get(name, "-"), theirs.get(name, "-")) for name in dict.fromkeys([*ours, *theirs])}


def _numbers(values: Tensor, digits: int = 3) -> Numbers:
    """Round to so many significant digits; infinity is written as 1e300, what is not a number as null."""
    return [None if value != value else significant(min(value, INFINITE), digits) for value in values.tolist()]
