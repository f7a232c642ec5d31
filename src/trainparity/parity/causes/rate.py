"""Another learning rate."""

import torch
from torch import Tensor

from trainparity.parity.causes import facts
from trainparity.parity.causes.finding import Finding, rule
from trainparity.parity.causes.optimizer_state import lost_at_the_start
from trainparity.parity.noise.distance import sketches
from trainparity.parity.steps.difference import Difference
from trainparity.parity.steps.fitting import fit
from trainparity.records.names import some
from trainparity.records.numbers import exact


@rule(
    "learning-rate",
    "update",
    proof="gradients agree and the learning rate is the reference's times one factor from the first step on",
    advice="give both runs one learning rate: with an equal global batch there is nothing to scale",
    differs=facts.rates,
)
def learning_rate(difference: Difference) -> Finding | None:
    """The learning rate is off by one factor over the whole run."""
    if not _differs(difference):
        return None
    left, right = _rates(difference)
    begun, ratios = _ratios(left, right)
    if begun[: difference.row].any() or not _one_factor(ratios):
        return None
    if difference.row and _speed(left, right) and not _of_some(difference):
        return None  # a warm-up that runs faster has such rates as well
    names, (ours, theirs) = facts.of_other_rate(difference), difference.runs
    times = f"is {exact(float(ratios[0]))} times that"
    return Finding(
        f"the learning rate of {some(names)} in {theirs} {times} in {ours}"
        if names
        else f"the learning rate of {theirs} {times} of {ours}",
        {"reference": left.tolist()[:20], "other": right.tolist()[:20], "ratio": float(ratios[0])},
    )


@rule(
    "schedule",
    "update",
    proof="gradients agree and the learning rate does not, by a factor that changes over time (and how many times as "
    "fast it runs)",
    advice="step the scheduler once in each optimizer step",
)
def schedule(difference: Difference) -> Finding | None:
    """The learning rate runs otherwise over time."""
    if not _differs(difference):
        return None
    left, right = _rates(difference)
    speed = _speed(left, right)
    stepped = f": it moves {speed} times as fast, as if stepped once per rank or micro-batch" if speed else ""
    if speed and _one_factor(_ratios(left, right)[1]):
        stepped += f", or rises {speed} times as high: the recorded steps of a warm-up do not tell these apart"
    return Finding(
        f"the learning rate runs otherwise from step {difference.step} on{stepped}",
        {"reference": left.tolist()[:20], "other": right.tolist()[:20], "speed": speed or 0},
    )


def _differs(difference: Difference) -> bool:
    """Tell whether rates differ of themselves: a state that is lost takes the rates of its groups along."""
    other_rates = difference.may_be_update and facts.rates(difference)
    return other_rates and not _of_another_class(difference) and not lost_at_the_start(difference)


def _of_another_class(difference: Difference) -> bool:
    """Tell whether the optimizers are of two classes and updates not multiples of one another, as rates make them."""
    if difference.stage != "update" or len({trace.layout.optimizer for trace in difference.traces}) == 1:
        return False
    updates = (sketches(trace, "update")[difference.row].flatten() for trace in difference.traces)
    return fit(*updates)[1] > _A_MULTIPLE


_A_MULTIPLE = 0.1
"""Part of an update that may be left over where another learning rate explains it."""


def _rates(difference: Difference) -> tuple[Tensor, Tensor]:
    """Return both runs' learning rates of each traced step, of the parameter where they are furthest apart: [T].

    They are zero in steps in which one run does not update that parameter, as before it is given to the optimizer.
    """
    updated = facts.updated(difference)
    left, right = (torch.where(updated, trace.arrays["setting/lr"], 0.0) for trace in difference.traces)
    apart = (right[difference.row] / left[difference.row]).log().abs().nan_to_num(0.0)
    furthest = int(torch.where(facts.held(difference), apart, -1.0).argmax())
    return left[:, furthest], right[:, furthest]


def _ratios(left: Tensor, right: Tensor) -> tuple[Tensor, Tensor]:
    """Return which learning rates are not zero, as a warm-up's first is, as a mask [T]; and right / left there."""
    begun = (left != 0) | (right != 0)
    return begun, (right / left)[begun]


def _one_factor(ratios: Tensor) -> bool:
    """Tell whether one run's learning rates are the other's times one number."""
    return facts.close(ratios, ratios[:1].expand_as(ratios))


def _of_some(difference: Difference) -> bool:
    """Tell whether some parameters have equal learning rates, where a schedule moves those of all."""
    left, right = (rates[facts.held(difference)] for rates in difference.pair("setting/lr") or ())
    return bool(((left == right) & (left != 0)).any())


def _speed(left: Tensor, right: Tensor) -> int | None:
    """Return k if the other run's schedule is the reference's, k steps at a time."""
    for k in range(2, min(16, len(left) // 2) + 1):
        ahead = left[::k]
        seen = right[: len(ahead)]
        if facts.close(seen, ahead) and not facts.close(seen, left[: len(ahead)]):
            return k
    return None
