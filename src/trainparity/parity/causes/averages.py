"""Weights that the loop keeps as averages of those it trains: by which part of the way they move in a step.

As a mean teacher's (Tarvainen and Valpola, 2017), a momentum encoder's (He et al., MoCo, 2020), a target network's, or
those that are evaluated (Polyak and Juditsky, 1992). Sketches are linear, and the same for all tensors of a size: they
show that part as the weights themselves do, and no format that passes compute in hides it.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from trainparity.parity.causes.finding import Finding, rule
from trainparity.parity.causes.modes import moved_by_their_mode
from trainparity.parity.causes.parted_starts import starts_elsewhere
from trainparity.parity.noise.distance import ALL
from trainparity.parity.recording.trace import Trace
from trainparity.parity.steps.difference import Difference
from trainparity.records.names import some
from trainparity.records.numbers import exact

_FEWEST = 16
"""Numbers of a tensor from which no other move lies on the way to one of its size by chance."""

_BESIDE = 0.1
"""Part of a move that may not lie on the way: how it was rounded."""

_ROUNDED = 3
"""Times this part by which two runs' may be apart."""


@dataclass(frozen=True)
class _Move:
    """How weights moved in a step: a part of the way to others (0: not at all), and the part that rounding may hide."""

    part: float
    unsure: float


Moves = dict[str, _Move]
"""By where to, all that explain how weights moved; `_STILL` alone where they did not."""

_STILL = ""


def _moves(trace: Trace, row: int, name: str) -> Moves:
    """Return how weights moved since the step before began; none where that is not towards others of their shape."""
    names, shapes = list(trace.layout.parameters), trace.layout.parameters
    here = names.index(name)
    started, left = trace.arrays["start/sketch"], trace.arrays["weight/sketch"]
    moved = started[row, here] - started[row - 1, here]
    if not moved.any():
        return {_STILL: _Move(0.0, 0.0)}
    trained = (trace.arrays["held"][row - 1] & (left[row - 1] != started[row - 1]).any(1)).tolist()
    others = [place for place, is_ in enumerate(trained) if is_ and shapes[names[place]] == shapes[name]]
    # Before the step too, as the average of another optimizer's may be made there.
    ends = torch.cat([started[row - 1, others], left[row - 1, others]])
    ways = ends - started[row - 1, here]
    parts = (ways @ moved) / ways.square().sum(1)
    beside = torch.linalg.vector_norm(moved - parts[:, None] * ways, dim=1) / torch.linalg.vector_norm(moved)
    # A sum rounds weights, however little they move; and the momentum itself, which shortens them all alike.
    rounded = trace.layout.stored()[name] * torch.linalg.vector_norm(started[row - 1, here])
    unsure = _ROUNDED * (beside * parts.abs() + rounded / torch.linalg.vector_norm(ways, dim=1))
    found: Moves = {}
    for place, (part, off, rounds) in enumerate(zip(parts.tolist(), beside.tolist(), unsure.tolist(), strict=True)):
        if off <= _BESIDE:
            found[names[others[place % len(others)]]] = _Move(part, rounds)
    return found


def _apart(difference: Difference) -> dict[str, tuple[str, _Move, _Move]]:
    """Return the averages that move by another part in one run: where to, and both parts."""
    found = {}
    for name in _kept_beside(difference):
        left, right = (_moves(trace, difference.row, name) for trace in difference.traces)
        if way := _only_otherwise(left, right):
            found[name] = way
    return found


def _only_otherwise(left: Moves, right: Moves) -> tuple[str, _Move, _Move] | None:
    """Return one of the ways that both may have moved, where none is the same; or that of the one that moved."""
    both = [(way, move, right[way]) for way, move in left.items() if way in right]
    if _STILL in left and _STILL not in right:
        both = [(way, left[_STILL], move) for way, move in right.items()]
    elif _STILL in right and _STILL not in left:
        both = [(way, move, right[_STILL]) for way, move in left.items()]
    return both[0] if both and all(_differ(ours, theirs) for _, ours, theirs in both) else None


def _never_moved(difference: Difference) -> list[str]:
    """Return weights that stay as they are in one run to its end, and move further than rounding in the other."""
    started = [trace.arrays["start/sketch"] for trace in difference.traces]
    moved = torch.stack([torch.linalg.vector_norm(each[-1] - each[0], dim=1) for each in started])
    units = torch.tensor(list(difference.left.layout.stored().values()), dtype=torch.float64)
    rounded = units * (1 + difference.left.layout.steps[-1])  # a sum that rounds one way in each step
    far = moved.amax(0) > rounded * torch.linalg.vector_norm(started[0][0], dim=1)
    still = torch.stack([(each == each[0]).all(0).all(1) for each in started])
    chosen = set(difference.named(far & (still[0] ^ still[1])))
    return [name for name in _kept_beside(difference) if name in chosen]


def _kept_beside(difference: Difference) -> list[str]:
    """Return the weights that no optimizer holds in any step, and that one run at least moves before this one."""
    if not difference.goes_on:
        return []
    moved = torch.stack([starts_elsewhere(trace, difference.row) for trace in difference.traces]).any(0)
    numbers = difference.left.layout.numbers()
    return [name for name in difference.named(moved & ~_ever_held(difference)) if numbers[name] >= _FEWEST]


def _ever_held(difference: Difference) -> Tensor:
    return torch.stack([trace.arrays["held"].any(0) for trace in difference.traces]).any(0)


def _differ(left: _Move, right: _Move) -> bool:
    return abs(left.part - right.part) > left.unsure + right.unsure + 1e-6 * max(abs(left.part), abs(right.part))


def _another_part(difference: Difference) -> bool:
    return bool(_apart(difference) or _never_moved(difference))


@rule(
    "weights-not-loaded",
    "start",
    proof="weights that no optimizer holds move, between two steps, by another part of the way to weights that are "
    "trained, as those of an average with another momentum, or that one run alone updates",
    advice="update the average once for each step of the optimizer in both runs, with the same momentum",
    differs=_another_part,
)
def averaged_by_another_part(difference: Difference) -> Finding | None:
    """A teacher or a target network follows the weights that are trained faster or slower, or not at all."""
    difference = _where_it_shows(difference)
    found = _apart(difference)
    if not found:
        return _moved_in_one_run(difference)
    to, *both = next(iter(found.values()))
    return Finding(
        f"between step {difference.left.layout.steps[difference.row - 1]} and step {difference.step} the loop moves "
        f"{some(list(found))} towards {to}: {_of_the_way(both[0].part)} in {difference.runs[0]}, and "
        f"{_of_the_way(both[1].part)} in {difference.runs[1]}",
        {"averages": list(found), "parts": [move.part for move in both]},
    )


def _where_it_shows(difference: Difference) -> Difference:
    """Return the step before which averages have moved: the next one if a step, by its hooks, moves them otherwise."""
    last = difference.row + 1 == len(difference.left.layout.steps)
    if last or difference.stage != "update":
        return difference
    moved = set(difference.beyond["update"] or difference.beyond["weight"]) - {ALL}
    if not moved or moved & set(difference.named(_ever_held(difference))):
        return difference
    return replace(difference, row=difference.row + 1)


def _moved_in_one_run(difference: Difference) -> Finding | None:
    by_mode = moved_by_their_mode(difference).values()
    names = [name for name in _never_moved(difference) if name not in by_mode]
    if not names:
        return None
    in_left = bool(starts_elsewhere(difference.left, difference.row)[difference.place(names[0])])
    return Finding(
        f"no optimizer holds {some(names)}, and the loop moves them between step "
        f"{difference.left.layout.steps[difference.row - 1]} and step {difference.step} in "
        f"{difference.who(in_left)}, and in no step of the other run",
        {"averages": names},
    )


def _of_the_way(part: float) -> str:
    return "not at all" if not part else f"by {exact(part, 3)} of the way"


def written_in_one_run(difference: Difference) -> list[str]:
    """Return weights that one run writes between forward pass and update, and the other in no step.

    Of those that no optimizer holds, and that follow weights which this one updates: beside a critic's target an actor
    is updated, too. By rounding the same average may be another number in a single step, or not.
    """
    if not difference.goes_on:
        return []
    written = [trace.arrays.get("written") for trace in difference.traces]
    if written[0] is None or written[1] is None:  # of an earlier version
        return []
    alone = (written[0].any(0) != written[1].any(0)) & (written[0] | written[1])[difference.row]
    beside = ~torch.logical_or(*difference.at("held")) & ~torch.stack(difference.at("gradient/norm")).any(0)
    numbers, row = difference.left.layout.numbers(), difference.row
    return [
        name
        for name in difference.named(alone & beside)
        if numbers[name] >= _FEWEST
        and any(any(_moves(trace, row, name)) for trace in difference.traces)  # not still, and on a way
    ]


@rule(
    "weights-not-loaded",
    "start",
    proof="weights that no optimizer holds, and that take no gradient, are written between the last forward "
    "pass and the update of a step, in one run only: an average that lags by a step",
    advice="update the average after the optimizer's step in both runs",
    differs=lambda difference: bool(written_in_one_run(difference)),
)
def written_before_the_update(difference: Difference) -> Finding | None:
    """An average that is updated before the weights that it follows lags by a step."""
    names = written_in_one_run(difference)
    if not names:
        return None
    place = difference.place(names[0])
    return Finding(
        f"{some(names)}: held by no optimizer, and in {difference.who(bool(difference.at('written')[0][place]))} alone "
        f"written after the last forward pass of step {difference.step} and before its update: an average that is made "
        "there follows weights that are a step older",
        {"averages": names},
    )
