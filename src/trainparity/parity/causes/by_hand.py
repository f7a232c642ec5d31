"""Gradients that code of the loop's own changes between backward and the update, without PyTorch's functions."""

from collections.abc import Sequence

import torch
from torch import Tensor

from trainparity.parity.causes.clipping import GROWN, furthest_parts, is_clipped_otherwise, part_kept
from trainparity.parity.causes.finding import Finding, rule
from trainparity.parity.causes.passes import adds_up, own_gradients_agree, parameters_beyond
from trainparity.parity.noise.distance import sketches
from trainparity.parity.recording.trace import Trace
from trainparity.parity.steps.after_backward import kept_after_backward, made_and_recorded
from trainparity.parity.steps.difference import Difference
from trainparity.parity.steps.fitting import fit
from trainparity.records.names import some
from trainparity.records.numbers import exact

_ADVICE = "compare the code between backward and optimizer.step(): clipping by hand, scaling, hooks"


@rule(
    "clipping",
    "clipping",
    proof="backward makes equal gradients, and code of the loop's own keeps another part of them in each step, "
    "shortens each parameter's by a number of its own, or cuts each number at one limit",
    advice=_ADVICE,
)
def clipped_by_hand(difference: Difference) -> Finding | None:
    """The loop shortens the gradient without a function of PyTorch's."""
    if difference.stage != "gradient" or own_gradients_agree(difference) is not True:
        return None
    if abs(difference.own_factor - 1) > _AS_LARGE:
        return None  # the loss is another one then
    kept = [kept_after_backward(trace, difference.row) for trace in difference.traces]
    applied = [part * part_kept(t, difference.row) for part, t in zip(kept, difference.traces, strict=True)]
    by_the_loop = all(applied) and not _part_alike(*applied) and not _cut_at_one_limit(difference, kept)
    if by_the_loop and not scaled_always(difference):
        return Finding(
            f"backward makes equal gradients, and {exact(applied[0], 4)} of them is applied in {difference.runs[0]}, "
            f"{exact(applied[1], 4)} in {difference.runs[1]}",
            {"kept": applied},
        )
    if not all(kept) and (numbers := _own_numbers(difference)):
        return Finding(
            "backward makes equal gradients, and code of the loop's own shortens each parameter's by a number of its "
            f"own: they are {exact(min(numbers), 4)} to {exact(max(numbers), 4)} times in {difference.runs[1]} what "
            f"they are in {difference.runs[0]}",
            {"factors": numbers},
        )
    for first, second in ((0, 1), (1, 0)):
        if kept[first] and not kept[second] and (limit := _limit(difference, second)):
            return Finding(
                f"each number of the gradient is cut at {exact(limit, 4)} in {difference.runs[second]} only; backward "
                "makes equal gradients",
                {"limit": limit},
            )
    return None


@rule(
    "clipping",
    "clipping",
    proof="backward makes equal gradients, and code of both loops' own takes away of them in other ways, of each "
    "parameter more in one of the runs",
    advice=_ADVICE,
)
def changed_by_hand(difference: Difference) -> Finding | None:
    """Both loops change the gradient by no one number, as row by row."""
    if difference.stage != "gradient" or own_gradients_agree(difference) is not True:
        return None
    changed = all(t.layout.world_size == 1 and not adds_up(t, difference.row) for t in difference.traces)
    if not changed or abs(difference.own_factor - 1) > _AS_LARGE:
        return None
    names = parameters_beyond(difference)
    if not names or not _only_shortened(difference, names):
        return None
    return Finding(
        "backward makes equal gradients, and what the update is given is no multiple of their sum, in both runs: "
        f"something else of {some(names)} in {difference.runs[1]} than in {difference.runs[0]}",
        {"parameters": names},
    )


def _only_shortened(difference: Difference, names: list[str]) -> bool:
    """Tell whether both runs take away of what backward made, and one of them more of every parameter that differs.

    Decay that is added by hand does neither, nor does noise; masks that are drawn take more here and less there.
    """
    for trace in difference.traces:
        made, total = made_and_recorded(trace, difference.row)
        if total.norm() >= made.norm():
            return False
    at = torch.tensor([name in names for name in difference.left.layout.parameters])
    left, right = (norms[at] for norms in difference.at("gradient/norm"))
    return bool((left <= right * (1 + _CHANGED)).all() or (right <= left * (1 + _CHANGED)).all())


def _cut_at_one_limit(difference: Difference, kept: list[float]) -> bool:
    """Tell whether PyTorch alone shortens the gradients, at one limit: of other lengths that leaves other parts."""
    limits = difference.numbers("clip/max_norm")
    return bool(min(difference.numbers("clip/calls"))) and limits[0] == limits[1] and _part_alike(*kept)


def _part_alike(left: float, right: float) -> bool:
    return abs(left / right - 1) <= 1e-3


def _own_numbers(difference: Difference) -> list[float]:
    """Return each parameter's gradient as a multiple of the reference's; empty where one is none, or is lengthened."""
    applied = torch.logical_or(*(norms > 0 for norms in difference.at("applied/norm")))
    pairs = zip(*(_at(trace, difference.row)[applied] for trace in difference.traces), strict=True)
    found = [fit(left, right) for left, right in pairs if left.any() or right.any()]
    factors = [factor for factor, rest in found if rest < 1e-3 and factor > 0]
    shorter = all(factor < 1 + 1e-3 for factor in factors) or all(factor > 1 - 1e-3 for factor in factors)
    several = sum(abs(factor - 1) > 1e-3 for factor in factors) > 1
    in_right = bool(factors) and min(factors) < 1 - 1e-3
    made, total = made_and_recorded(difference.right if in_right else difference.left, difference.row)
    shorter = shorter and bool(total.norm() < made.norm() * (1 - _CHANGED))
    one = bool(factors) and max(factors) - min(factors) <= 1e-3 * max(factors)  # which a loss that is scaled makes
    return factors if len(factors) == len(found) and shorter and several and not one else []


_AS_LARGE = 0.1
"""Part of their size by which gradients that rounding alone tells apart may differ, in a coarse format."""


def scaled_always(difference: Difference) -> bool:
    """Tell whether both runs multiply their gradients by a number in every step, and no limit makes that.

    By one number in all steps, or both by another in each, as one over how many tokens a batch has: one run by the same
    multiple of the other's in all steps. A limit leaves gradients of one length, or other parts than one over a whole
    number and no such multiple, as gradients part with the weights.
    """
    steps = len(difference.left.layout.steps)
    kept = [[kept_after_backward(trace, row) for row in range(steps)] for trace in difference.traces]
    if steps < 2 or not all(map(all, kept)):
        return False
    one_multiple = steps > 2 and _all_alike([a / b for a, b in zip(*kept, strict=True)], _ONE_MULTIPLE)
    lengths = [trace.arrays["gradient_norm"].tolist() for trace in difference.traces]
    one_multiple = one_multiple and not all(map(_all_alike, lengths))
    of_counts = all(_is_of_a_count(part) for parts in kept for part in parts)
    return all(map(_all_alike, kept)) or one_multiple or of_counts


_ONE_MULTIPLE = 1e-5
"""Part of itself by which it differs for rounding: gradients are multiplied in single precision."""


def _is_of_a_count(part: float) -> bool:
    count = 1 / part
    return count > 1.5 and abs(count - round(count)) <= _OF_A_COUNT


_OF_A_COUNT = 0.02
"""How far one over what is left of a gradient may be off a whole number."""


def _all_alike(values: Sequence[float], within: float = 1e-3) -> bool:
    return max(values) - min(values) <= within * max(values)


def _limit(difference: Difference, which: int) -> float:
    """Return the number that one run's gradients are cut at, told by those whose sketch holds each number; 0: none."""
    whole, cut = (
        [row for row, shape in zip(_at(trace, difference.row), trace.layout.parameters.values(), strict=True)
         if torch.Size(shape).numel() <= trace.layout.sketch_size]
        for trace in (difference.traces if which else (difference.right, difference.left))
    )  # fmt: skip
    if not whole:
        return 0.0
    made, left = torch.stack(whole), torch.stack(cut)
    limit = float(left.abs().amax())
    shortened = made.abs() > limit * (1 + 1e-3)
    apart = (made.clamp(-limit, limit) - left).norm()
    return limit if int(shortened.sum()) > 1 and float(apart) <= 1e-3 * float(left.norm()) else 0.0


def _at(trace: Trace, row: int) -> Tensor:
    return sketches(trace, "gradient")[row]


def _changed_besides_clipping(difference: Difference) -> bool:
    """Tell whether both runs clip in as many calls, and one alone keeps other parts of some parameters' gradients.

    One call keeps one part of all: that is exact but for how gradients are stored, as their weights are.
    """
    calls = difference.numbers("clip/calls")
    units = max(unit for trace in difference.traces for unit in trace.layout.stored().values())
    apart = furthest_parts(difference)
    rounded = GROWN + 2 * units
    return calls[0] == calls[1] > 0 and min(apart) <= rounded and max(apart) > max(_CHANGED, 16 * rounded)


@rule(
    "clipping",
    "clipping",
    proof="gradients agree when they are clipped, and not as they are applied; or other parts of some parameters' are "
    "left than of all, by as many calls that clip",
    advice=_ADVICE,
    differs=_changed_besides_clipping,
)
def changed_after_clipping(difference: Difference) -> Finding | None:
    """Gradients that are changed between clipping and the update."""
    applied, gradients = difference.pair("applied/norm"), difference.norms("gradient")
    known = _changed_besides_clipping(difference)
    if (difference.stage != "update" and not known) or difference.beyond["start"] or applied is None:
        return None
    kept = [torch.where(b > 0, a / b, 1.0) for a, b in zip(applied, gradients, strict=True)]
    least = _CHANGED if known else max(_CHANGED, difference.tolerance)
    apart = (kept[0] - kept[1]).abs() > least * torch.maximum(*kept)
    names = difference.named(apart)
    clipped = torch.logical_and(*(lengths > 0 for lengths in gradients))
    if not names or (bool(apart[clipped].all()) and is_clipped_otherwise(difference)):
        return None
    first = difference.place(names[0])
    cuts = difference.numbers("clip/cuts")
    by_one = bool(cuts[0]) != bool(cuts[1])
    how = f"clipped in {difference.who(bool(cuts[0]))} alone" if by_one else "changed between clipping and the update"
    return Finding(
        f"the gradient of {some(names)} is {how}: {exact(float(kept[0][first]), 4)} of its norm is applied in "
        f"{difference.runs[0]}, {exact(float(kept[1][first]), 4)} in {difference.runs[1]}",
        {"parameters": names},
        advice="clip in both runs, or in neither" if by_one else "",
    )


_CHANGED = 1e-3
"""Part of its norm by which an applied gradient may differ for rounding."""
