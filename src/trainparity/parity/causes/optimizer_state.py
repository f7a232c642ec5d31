"""What an optimizer has kept of earlier steps: lost, restored for other parameters, of other moments or step counts."""

import math

import torch

from trainparity.parity.causes import facts
from trainparity.parity.causes.finding import Finding, rule
from trainparity.parity.noise.distance import ALL
from trainparity.parity.noise.margin import is_coarse
from trainparity.parity.steps.difference import Difference
from trainparity.parity.steps.updates import evaluated_several_times, traced_since
from trainparity.records.names import some
from trainparity.records.numbers import exact


def _state_lost(difference: Difference) -> bool:
    """Tell whether one run alone begins the step with nothing of earlier ones, which the same optimizer keeps in both.

    A state that is seen in no step may lie elsewhere, as in a wrapper.
    """
    norms, classes = facts.state_norms(difference), facts.classes(difference)
    if classes[0] != classes[1] or not difference.may_be_update:
        return False
    kept = [trace.arrays["state/norm"].any() for trace in difference.traces]
    none_left = bool(norms[0]) != bool(norms[1])
    return all(kept) and (none_left or bool(_moments_lost(difference) or _without_state(difference)))


def lost_at_the_start(difference: Difference) -> bool:
    """Tell whether training goes on with nothing of the state that it had, in one run alone: resumed by weights."""
    return not difference.row and _state_lost(difference)


def _moments_lost(difference: Difference) -> int:
    """Return how many parameters have a moment of zeros in one run alone, if that is most of those that have moments.

    A second moment is nothing beside the first in the length of both. By rounding a single one may be all zeros.
    """
    zeros, (left, right) = difference.pair("state/zeros"), difference.at("state/tensors")
    if zeros is None:  # of an earlier version
        return 0
    other = int((zeros[0] != zeros[1]).sum())
    return other if torch.equal(left, right) and 2 * other > int((left > 0).sum()) else 0


def _without_state(difference: Difference) -> list[str]:
    """Return the parameters of which one run alone keeps nothing, and the other something that is not zero.

    Of what is kept in another shape, as a part of it by each rank, nothing is known: it is seen in no step.
    """
    (left, right), (ours, theirs) = difference.at("state/tensors"), difference.at("state/norm")
    in_its_shape = [(trace.arrays["state/tensors"] > 0).any(0) for trace in difference.traces]
    known = in_its_shape[0] & in_its_shape[1]
    return difference.named(((left > 0) ^ (right > 0)) & (torch.maximum(ours, theirs) > 0) & known)


def _moments_differ(difference: Difference) -> bool:
    """Tell whether what one class of optimizer keeps differs by more than a coarse format hides in each step's update.

    A moment is a sum of gradients, and is apart no further than they are, and rounded twice in each step where it is
    kept in the weights' format.
    """
    classes = facts.classes(difference)
    if classes[0] != classes[1] or not is_coarse(difference.left.layout):
        return False
    if (rows := traced_since(difference)) is None:
        return False
    if not math.isfinite(difference.tolerance):
        return False  # a twin is lost there
    units = max(trace.layout.stored_roundoff for trace in difference.traces)
    rounded = 2 * units * (rows.stop - 1 - rows.start)
    if not min(facts.state_norms(difference)) or facts.states_agree(difference, difference.tolerance + rounded):
        return False
    if _kept_by_another_convention(difference):
        return False
    return difference.same_precision and difference.may_be_update and not evaluated_several_times(difference, rows)


def _kept_by_another_convention(difference: Difference) -> bool:
    """Tell whether all that is kept is the reference's times one number, in all steps, and updates are the same.

    A momentum that is a sum of gradients is so, beside one that is their mean, or one that holds the learning rate.
    """
    left, right = (trace.arrays["state/norm"] for trace in difference.traces)
    kept = (left > 0) & (right > 0)
    ratios = (right[kept] / left[kept]).double()
    begun = kept.any(1)
    whole = (torch.linalg.vector_norm(right, dim=1) / torch.linalg.vector_norm(left, dim=1))[begun].double()
    same = int(begun.sum()) > 1 and torch.allclose(ratios, ratios.median(), rtol=_ONE_NUMBER, atol=0.0)
    same = same and torch.allclose(whole, whole.median(), rtol=_ONE_NUMBER_OF_ALL, atol=0.0)
    apart = difference.distances("update")[:, -1] <= _SAME_UPDATES * difference.floor["update"][:, -1]
    return same and bool(apart.all())


_ONE_NUMBER = 0.02
"""Part by which the length of one moment may differ from a multiple of another, for the rounding of gradients."""

_ONE_NUMBER_OF_ALL = 0.003
"""The same of all moments together: another convention's lay at 0.0003, another momentum of 0.96 for 0.95 at 0.011."""

_SAME_UPDATES = 1.5
"""Floors that updates may be apart in all steps where the state's own convention alone is another one."""


def _counted_otherwise(difference: Difference) -> list[str]:
    """Return the parameters of which PyTorch's own optimizers have counted other steps, by a tenth of them or more.

    A count is exact, and the fewer steps it says, the more Adam corrects its moments. Zeros are a step too. Others
    count steps for nothing.
    """
    counts, traces = difference.pair("state/steps"), difference.traces
    if counts is None or torch.equal(*counts):
        return []
    known = all(trace.layout.without_limit or trace.layout.optimizer == "Adafactor" for trace in traces)
    known = known and not facts.of_another_class(difference)
    classes = facts.classes(difference)
    if not known or classes[0] != classes[1] or not difference.may_be_update:
        return []
    fewer, more = torch.minimum(*counts), torch.maximum(*counts)
    counted = (fewer < (1 - _COUNTED) * more) & (fewer <= _FORGOTTEN)
    by_counts = torch.tensor([name in _BY_COUNTS for name in difference.left.layout.updated_by()])
    if (decay := difference.pair(f"{facts.SETTING}lr_decay")) is not None:
        by_counts |= torch.logical_and(*decay)
    trained = torch.stack([lengths > 0 for lengths in difference.norms("gradient")]).all(0)
    return difference.named(counted & by_counts & trained)


_BY_COUNTS = ("Adafactor", "Adam", "AdamW", "Adamax", "NAdam", "RAdam", "SparseAdam", "ASGD")
"""Optimizers whose update depends on how many steps they have made; Adagrad's does where its rate decays."""

_COUNTED = 0.1
"""Part of the steps that an optimizer counts by which counts say another thing."""

_FORGOTTEN = 1000
"""Steps after which Adam corrects hardly anything, with a usual beta of 0.999."""


def _restored_otherwise(difference: Difference) -> Finding | None:
    """Find a state that training begins with, and that is another one by more than gradients are apart, as in bf16."""
    ours, theirs = difference.at("state/norm")
    kept = (ours > 0) & (theirs > 0)
    if difference.row or not bool(kept.any()):
        return None
    noise = torch.clamp(difference.floor["gradient"][0, :-1], min=difference.left.layout.unit_roundoff)
    apart = (ours / theirs - 1).abs()[kept]
    if not bool((apart / noise[kept]).median() > _RESTORED):
        return None
    by = exact(float(apart.median()), 2)
    return Finding(
        f"before its first step the optimizer's state differs, of half of the parameters by {by} of its length or "
        "more: it was not restored as it was saved",
        {"norm_of_the_state": facts.state_norms(difference)},
    )


_RESTORED = 16
"""Times the noise of its gradient by which the state of half of all parameters does not part before training begins."""


def _exchanged(difference: Difference) -> Finding | None:
    """Find a state as long in all, and of another length for each parameter whose update is another one.

    As where it is loaded for parameters in another order, by number.
    """
    (ours, theirs), moved = difference.at("state/norm"), set(difference.beyond["update"]) - {ALL}
    known = math.isfinite(difference.tolerance)  # else gradients are none
    names = _permuted(difference, 0.0) or (_permuted(difference, difference.tolerance) if known else [])
    if not names and not difference.row:  # as of other shapes, where a part of it is as long as before
        apart = (ours - theirs).abs() > max(_NO_ROUNDING, difference.tolerance) * torch.maximum(ours, theirs)
        names = difference.named(apart) if moved and moved <= set(difference.named(apart)) else []
    if not names:
        return None
    when = f"step {difference.step}" if difference.row else "its first step"
    return Finding(
        f"before {when} the optimizer's state is as long in both runs, and of another length for {some(names)}: it was "
        "loaded for other parameters than it was saved for",
        {"norm_of_the_state": facts.state_norms(difference), "parameters": names},
    )


def _permuted(difference: Difference, rounded: float) -> list[str]:
    """Return the parameters whose state is of another length, where all parameters' lengths are the same but for whose.

    Two runs of one training have that of each parameter in common, up to rounding.
    """
    ours, theirs = difference.at("state/norm")
    if not torch.allclose(ours.sort().values, theirs.sort().values, rtol=max(rounded, _NO_SUM), atol=0.0):
        return []
    return difference.named((ours - theirs).abs() > max(_NO_ROUNDING, 16 * rounded) * torch.maximum(ours, theirs))


_NO_SUM = 1e-9
"""Part by which the length of what is the same to the bit may differ."""

_NO_ROUNDING = 1e-3
"""Part of its length by which the state of a parameter differs that is another one, where both are rounded."""


def _state_differs(difference: Difference) -> bool:
    found = _state_lost(difference) or _moments_differ(difference) or bool(_permuted(difference, 0.0))
    return found or bool(_counted_otherwise(difference))


@rule(
    "optimizer-state",
    "update",
    proof="gradients and learning rate agree; another class, or other moments or step counts before the update",
    advice="give both runs one optimizer with one set of options, and restore its state with the weights",
    differs=_state_differs,
)
def optimizer_state(difference: Difference) -> Finding | None:
    """Another optimizer, or other moments and step counts before the update."""
    none_kept = _state_lost(difference)
    if difference.stage != "update" and not _state_differs(difference):
        return None
    classes = facts.classes(difference)
    if classes[0] != classes[1]:
        return Finding(f"{classes[0]} against {classes[1]}", {"optimizers": classes})
    steps = list(difference.numbers("optimizer_step"))
    agree = not none_kept and facts.states_agree(difference, max(1e-3, difference.tolerance))
    if agree and (counted := _counted_otherwise(difference)):
        values = [float(of_run[difference.place(counted[0])]) for of_run in difference.at("state/steps")]
        return _differs_by(difference, f" of {some(counted)}: it counts as steps", values, values)
    if agree and steps[0] == steps[1]:
        return _restored_otherwise(difference) or _exchanged(difference)
    if agree:
        return _differs_by(difference, ": it counts as steps", steps, steps)
    return _differs_by(difference, f"{_what_is_lost(difference)}: its norm is", facts.state_norms(difference), steps)


def _what_is_lost(difference: Difference) -> str:
    total = facts.state_norms(difference)
    if min(total) == 0 < max(total):
        return " (one of them has none: lost on resume, or with an optimizer made anew)"
    if none := _without_state(difference):
        return f" (one run keeps nothing of {some(none)}: lost on resume)"
    if zeros := _moments_lost(difference):
        return f" (of {zeros} parameters a moment is all zeros in one run alone: lost on resume)"
    return ""


def _differs_by(difference: Difference, what: str, values: list[float], counted: list[float]) -> Finding:
    left, right = values
    return Finding(
        f"before step {difference.step} the optimizer's state differs{what} {exact(left)} in "
        f"{difference.runs[0]} and {exact(right)} in {difference.runs[1]}",
        {"norm_of_the_state": facts.state_norms(difference), "steps_counted": counted},
    )
