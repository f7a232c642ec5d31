"""Clipping too early, by shards, or to another norm."""

from collections.abc import Sequence

import torch
from torch import Tensor

from trainparity.parity.causes import facts
from trainparity.parity.causes.finding import Finding, rule
from trainparity.parity.recording.trace import Trace
from trainparity.parity.steps.difference import Difference
from trainparity.records.numbers import exact


def _clipped_at_other_times(difference: Difference) -> bool:
    return len({_clipped_early(trace, difference.row) for trace in difference.traces}) > 1


@rule(
    "clipping",
    "clipping",
    proof="clipped before the last backward",
    advice="clip once, after the last micro-batch's backward",
    differs=_clipped_at_other_times,
)
def clipped_too_early(difference: Difference) -> Finding | None:
    """Gradients clipped before the last micro-batch's backward, in one run only."""
    early = [_clipped_early(trace, difference.row) for trace in difference.traces]
    if early[0] == early[1]:
        return None
    calls, passes = difference.numbers("clip/calls"), difference.numbers("clip/backwards")
    first = min((p for p in passes if p), default=1)
    return Finding(
        f"gradients were clipped {max(calls):g} times, first after micro-batch {max(1, first):g}",
        {"clip_calls": list(calls), "backward_passes_before_the_first": list(passes)},
    )


def _clipped_early(trace: Trace, row: int) -> bool:
    """Tell whether a call before the last backward pass shortened the gradient."""
    passes = int(trace.arrays["rank/backwards"][row].amax())
    return bool(trace.arrays["clip/cuts"][row]) and int(trace.arrays["clip/backwards"][row]) < passes


@rule(
    "clipping",
    "clipping",
    proof="gradients carry a number when they are clipped, and it is taken out of them afterwards",
    advice="divide gradients by the scale of the loss before they are clipped",
)
def clipped_while_scaled(difference: Difference) -> Finding | None:
    """A loop that scales its loss by hand clips before it divides its gradients again."""
    factor, rest = difference.scale
    if difference.stage != "gradient" or factor <= 0 or rest > difference.tolerance:
        return None
    if not max(difference.numbers("clip/cuts")):
        return None
    changed = [_changed_besides(trace, difference.row) for trace in difference.traces]
    if not all(changed) or abs(changed[1] / changed[0] - 1) < _TAKEN_OUT or not max(changed) > (1 - _TAKEN_OUT):
        return None
    if abs(changed[1] / changed[0] * factor - 1) > _TAKEN_OUT:
        return None
    return Finding(
        f"gradients are {exact(max(factor, 1 / factor))} times as large in {difference.who(factor < 1)} when they are "
        "clipped, and are divided by that afterwards",
        {"factor": factor, "applied_of_what_clipping_leaves": changed},
    )


_TAKEN_OUT = 0.01
"""Part by which what is taken out of clipped gradients may differ from what they carried, for rounding."""


def _changed_besides(trace: Trace, row: int) -> float:
    """Return the part of the gradient's norm that is applied, of what clipping to a norm leaves; 0: not known."""
    before, after = (float(torch.linalg.vector_norm(trace.arrays[key][row])) for key in _CLIPPED)
    limit, calls = float(trace.arrays["clip/max_norm"][row]), int(trace.arrays["clip/calls"][row])
    if before <= 0 or calls > 1 or (calls and limit <= 0):
        return 0.0
    return after / (min(before, limit) if calls else before)


def is_clipped_otherwise(difference: Difference) -> bool:
    """Tell whether a limit that cuts differs, or the part of the gradient that is kept."""
    limits, cuts = difference.numbers("clip/max_norm"), difference.numbers("clip/cuts")
    kept, calls = _kept(difference), difference.numbers("clip/calls")
    other_limit = max(cuts) > 0 and min(limits) > 0 and abs(limits[0] - limits[1]) > _parted(difference) * max(limits)
    uncut = max(cuts) > 0 and not min(calls)
    if (other_limit or uncut) and max(kept) > 1 - GROWN > min(kept):
        return not _clipped_inside_the_step(difference, max(kept) / min(kept))
    if other_limit:
        return True
    if max(kept) > 1 + GROWN or _shortened_alike(difference):
        return False  # no clipping makes a gradient longer
    units = max(trace.layout.unit_roundoff for trace in difference.traces)
    noise = difference.margin * difference.noise("gradient")  # of the norms
    return abs(kept[0] - kept[1]) > max(1e-5, noise, 16 * units) * min(kept)  # of the longer: noise may exceed one


def _parted(difference: Difference) -> float:
    limits = [trace.arrays["clip/max_norm"] for trace in difference.traces]
    return float(parted_limits(difference.distances("start"), limits)[difference.row])


def parted_limits(start: Tensor, limits: Sequence[Tensor]) -> Tensor:
    """Return by which part limits may differ that are computed from weights, which rounding has parted (AGC).

    Such a limit is another one in each step.

    Args:
        start: How far apart weights are before each step: float64 [T, P + 1].
        limits: Of both runs: float64 [T].

    Returns:
        float64 [T]
    """
    follow = all(bool((of_run != of_run[:1]).any()) for of_run in limits)
    parted = start[:, :-1].nan_to_num(0.0, posinf=0.0)
    return (parted.amax(1) if follow and parted.numel() else torch.zeros(len(parted))).double().clamp(min=1e-6)


def _shortened_alike(difference: Difference) -> bool:
    """Tell whether one limit leaves gradients of one length, of which different parts may be kept then."""
    left, right = (float(torch.linalg.vector_norm(norms)) for norms in difference.at("applied/norm"))
    cut = min(difference.numbers("clip/cuts")) > 0 and min(difference.numbers("clip/max_norm")) > 0
    return cut and abs(left - right) <= 1e-5 * left


def _clipped_inside_the_step(difference: Difference, factor: float) -> bool:
    """Tell whether the optimizer itself clips what one run does not: an update as long, and a state that shows as much.

    Some have a limit of their own, and none of PyTorch's. An update alone proves nothing, as Adam's hardly depends on
    its gradients' length, nor does a state where that is mostly a sum of such updates.
    """
    if all(trace.layout.without_limit for trace in difference.traces):
        return False
    after = min(difference.row + 1, len(difference.left.layout.steps) - 1)
    updates = [float(torch.linalg.vector_norm(norms)) for norms in difference.norms("update")]
    shorter = 1 - 1 / (1 + _AS_LONG * (factor - 1))
    as_long = min(updates) > 0 and max(updates) - min(updates) < shorter * max(updates)
    return as_long and facts.states_agree(difference, shorter, after)


_AS_LONG = 0.05
"""Part of what clipping takes away by which lengths may differ that it has shortened alike."""

GROWN = 1e-4
"""Part of its norm by which a gradient may be longer after clipping, for rounding."""


def _parts_kept(difference: Difference) -> list[Tensor]:
    """Return for each run which part of each held parameter's gradient is applied, relative to that of all: [held]."""
    held = facts.held(difference)
    found = []
    for trace, whole in zip(difference.traces, _kept(difference), strict=True):
        before, after = (trace.arrays[key][difference.row][held] for key in _CLIPPED)
        found.append(torch.where(before > 0, after / before / whole, 1.0))
    return found


def furthest_parts(difference: Difference) -> list[float]:
    """Return for each run how far a parameter's part is from that of all, at most: 0 where one call has kept it."""
    return [float((part - 1).abs().amax()) if part.numel() else 0.0 for part in _parts_kept(difference)]


def _which_in_parts(difference: Difference) -> int | None:
    """Return which run keeps other parts of some parameters' gradients, where the other keeps one part of all."""
    units = max(max(trace.layout.unit_roundoff, *trace.layout.stored().values()) for trace in difference.traces)
    parts, kept = _parts_kept(difference), _kept(difference)
    grown = any((part * of > 1 + GROWN + 2 * units).any() for part, of in zip(parts, kept, strict=True))
    if not max(difference.numbers("clip/calls")) or grown:
        return None  # no clipping makes a gradient longer
    apart = furthest_parts(difference)
    several = apart.index(max(apart))
    # In one call all are shortened alike, or are not in it: what else differs is no clipping.
    left_out = bool((parts[several] * kept[several] > 1 - GROWN).any())
    in_calls = len(set(difference.numbers("clip/calls"))) > 1 or left_out
    return several if in_calls and min(apart) <= GROWN + 2 * units and max(apart) > GROWN + 16 * units else None


def _clipped_in_parts(difference: Difference) -> bool:
    return _which_in_parts(difference) is not None


@rule(
    "clipping",
    "clipping",
    proof="one run keeps one part of all parameters' gradients, and the other another part of some of them",
    advice="clip all parameters in one call, by the norm of the whole gradient",
    differs=_clipped_in_parts,
)
def clipped_in_parts(difference: Difference) -> Finding | None:
    """Groups of parameters that are clipped by norms of their own, in one run only."""
    several = _which_in_parts(difference)
    if not difference.may_be_update or several is None:
        return None
    kept = _kept(difference)
    least, most = (float(of * kept[several]) for of in _parts_kept(difference)[several].aminmax())
    return Finding(
        f"{difference.runs[several]} keeps {exact(least, 4)} to {exact(most, 4)} of its parameters' gradients: "
        f"groups of them are clipped apart; {difference.runs[1 - several]} keeps {exact(kept[1 - several], 4)} of all",
        {"least_kept": least, "most_kept": most},
    )


def _kept(difference: Difference) -> list[float]:
    return [part_kept(trace, difference.row) for trace in difference.traces]


def part_kept(trace: Trace, row: int) -> float:
    """Return the part of the whole gradient's norm that was applied, of what was recorded before clipping."""
    before, after = (torch.linalg.vector_norm(trace.arrays[key][row]) for key in _CLIPPED)
    return float(after / before) if before > 0 else 1.0


_CLIPPED = ("gradient/norm", "applied/norm")


@rule(
    "clipping",
    "clipping",
    proof="an equal gradient is kept to another part of its norm, or another limit cuts it",
    advice="clip once, after accumulation and reduction, by the norm of the whole gradient and with one limit",
    differs=is_clipped_otherwise,
)
def clipped_otherwise(difference: Difference) -> Finding | None:
    """Equal gradients before clipping, other ones after."""
    if not difference.may_be_update or not is_clipped_otherwise(difference):
        return None
    kept, limits, calls = _kept(difference), difference.numbers("clip/max_norm"), difference.numbers("clip/calls")
    return Finding(
        f"the same gradient is clipped to {exact(kept[0], 4)} of its norm in {difference.runs[0]}, {exact(kept[1], 4)} "
        f"in {difference.runs[1]}",
        {"kept": kept, "max_norm": list(limits), "clip_calls": list(calls)},
    )
