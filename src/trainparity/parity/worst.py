"""Where two runs are the most multiples of the noise floor apart: of a kind, of a step, of a tensor."""

from torch import Tensor

from trainparity.parity.noise.distance import KINDS, Judged, distances, multiples, names
from trainparity.parity.noise.floor import Floor
from trainparity.parity.recording.trace import Trace
from trainparity.records.base import INFINITE
from trainparity.records.verdict import Worst


def worst(left: Trace, right: Trace, floor: Floor, off: dict[Judged, Tensor]) -> list[Worst]:
    """Return the worst tensor of each kind that is apart at all; `off` holds multiples [T, tensors + 1] by kind."""
    found = []
    for kind, times in off.items():
        if times.numel() and (known := times.nan_to_num(0)).amax() > 0:
            row, column = divmod(int(known.argmax()), times.shape[1])
            found.append(_at(left, right, floor, kind, row, column, float(times[row, column])))
    return found


def worst_tensors(left: Trace, right: Trace, floor: Floor, count: int) -> list[Worst]:
    """Return the tensors that are the most times their floor away, each once, in its worst kind at its worst step."""
    found = []
    for kind in KINDS:
        off = multiples(left, right, kind, floor[kind])[:, :-1].nan_to_num(0)
        if not off.numel():
            continue
        highest = off.max(0)
        for column in highest.values.topk(min(count, off.shape[1])).indices.tolist():
            row = int(highest.indices[column])
            found.append(_at(left, right, floor, kind, row, column, float(highest.values[column])))
    # Of a tensor that is off in several kinds the largest stays: the last one that the dictionary is given.
    ordered = sorted(found, key=lambda one: one.distance_over_floor)
    largest = {one.tensor: one for one in ordered if one.distance_over_floor > 0}
    return sorted(largest.values(), key=lambda one: -one.distance_over_floor)[:count]


def worst_of_steps(left: Trace, right: Trace, floor: Floor) -> list[tuple[int, Judged, float, float]]:
    """Return (step, kind, distance, floor) of the tensor that is the most multiples of the floor away, per step."""
    rows: list[tuple[int, Judged, float, float]] = []
    for kind in KINDS:
        apart, off = distances(left, right, kind), multiples(left, right, kind, floor[kind]).nan_to_num(0)
        for row, column in enumerate(off.argmax(1).tolist() if off.numel() else ()):
            rows.append((left.layout.steps[row], kind, float(apart[row, column]), float(floor[kind][row, column])))
    return rows


def _at(left: Trace, right: Trace, floor: Floor, kind: Judged, row: int, column: int, times: float) -> Worst:
    """Return what is said of a tensor in a step, which is so many times its floor away."""
    return Worst(
        kind=kind,
        distance_over_floor=times,
        distance=min(float(distances(left, right, kind)[row, column]), INFINITE),
        floor=min(float(floor[kind][row, column]), INFINITE),
        step=left.layout.steps[row],
        tensor=names(left, kind)[column],
    )
