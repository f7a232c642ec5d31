"""What is recorded exactly, and differs or does not, whatever the noise floor is."""

import math

import torch
from torch import Tensor

from trainparity.parity.noise.rounding import stored_rounding
from trainparity.parity.steps.difference import Difference

SETTING = "setting/"
_HOW = ("foreach", "fused", "capturable", "differentiable")
"""Options that choose how an update is computed, and not which."""

_BESIDE = {"decoupled_weight_decay": "weight_decay", "dampening": "momentum", "nesterov": "momentum"}
"""Options that say how another one is applied."""


def state_norms(difference: Difference, row: int | None = None) -> list[float]:
    """Return the norm of all that each run's optimizer keeps, before the update of this step or in another row."""
    at = difference.row if row is None else row
    return [float(torch.linalg.vector_norm(trace.arrays["state/norm"][at])) for trace in difference.traces]


def states_agree(difference: Difference, part: float, row: int | None = None) -> bool:
    """Tell whether these norms differ by at most a part of themselves, or are not of as many tensors.

    An optimizer that keeps an average of the weights too, or its last gradients, makes the same update.
    """
    at = difference.row if row is None else row
    left, right = (trace.arrays["state/tensors"][at] for trace in difference.traces)
    norms = state_norms(difference, row)
    overflowed = not any(map(math.isfinite, norms))
    return overflowed or not torch.equal(left, right) or abs(norms[0] - norms[1]) <= part * max(norms)


def options(difference: Difference) -> list[str]:
    """Return the options of the optimizer, but for the learning rate, that differ for a parameter that both update."""
    return [name for name in _names(difference) if name != "lr" and _differs(difference, name)] + choices(difference)


def classes(difference: Difference) -> list[str]:
    """Return the class of each run's optimizer."""
    return [trace.layout.optimizer for trace in difference.traces]


def of_another_class(difference: Difference) -> list[str]:
    """Return the parameters that are held by an optimizer of one class in one run, and of another in the other.

    Not where each class has another one in the other run, as one for several devices: what they do shows in updates.
    """
    left, right = (trace.layout.optimizers for trace in difference.traces)
    pairs = {(left[name], right[name]) for name in left if name in right}
    ours, theirs = ({pair[side] for pair in pairs} for side in (0, 1))
    if len(pairs) == len(ours) == len(theirs) and not ours & theirs:
        return []
    return [name for name in left if right.get(name, left[name]) != left[name]]


def choices(difference: Difference) -> list[str]:
    """Return the options that are words and differ."""
    left, right = difference.left.layout.choices, difference.right.layout.choices
    return sorted(name for name in (left.keys() & right.keys()) - {*_HOW} if left[name] != right[name])


def _names(difference: Difference) -> list[str]:
    """Return the names of what chooses an update, the learning rate among them."""
    names = sorted(key.removeprefix(SETTING) for key in difference.left.arrays if key.startswith(SETTING))
    return [name for name in names if name not in _HOW]


def set_otherwise(difference: Difference) -> Tensor:
    """Return the parameters for which the learning rate or another option differs: bool [P]."""
    apart = [_apart(difference, name) for name in _names(difference)]
    return torch.stack([*apart, torch.zeros(len(difference.left.layout.parameters), dtype=torch.bool)]).any(0)


def of_other_rate(difference: Difference) -> list[str]:
    """Return the parameters whose learning rate differs, where it does not of all that both update."""
    apart, used = _apart(difference, "lr"), held(difference)
    return difference.named(apart & used) if bool((used & ~apart).any()) else []


def rates(difference: Difference) -> bool:
    """Tell whether the learning rates differ for a parameter that both update."""
    return _differs(difference, "lr")


def _differs(difference: Difference, name: str) -> bool:
    return bool(_apart(difference, name)[held(difference)].any())


def _apart(difference: Difference, name: str) -> Tensor:
    """Return the parameters for which an option differs and chooses something: bool [P]."""
    values = difference.pair(SETTING + name)
    if values is None:
        return torch.zeros(len(difference.left.layout.parameters), dtype=torch.bool)
    tolerance = _COMPUTED if name != "lr" and _is_computed(difference, name) else 1e-6
    apart = ~torch.isclose(*values, rtol=tolerance, atol=0.0, equal_nan=True)
    for beside in _needed(name):
        if (used := difference.pair(SETTING + beside)) is not None:
            apart &= (used[0] != 0) | (used[1] != 0)
    return apart


def _needed(name: str) -> list[str]:
    """Return the options without which another one chooses nothing: where they are zero in both runs."""
    return [*([] if name == "lr" else ["lr"]), *([_BESIDE[name]] if name in _BESIDE else [])]


def _is_computed(difference: Difference, name: str) -> bool:
    """Tell whether both optimizers change an option from one number on in each step, as Prodigy what it estimates."""
    options = [trace.arrays[SETTING + name] for trace in difference.traces]
    changed = [(option[1:] != option[:-1]).any() for option in options]
    return all(changed) and torch.equal(options[0][0], options[1][0])


_COMPUTED = 1e-3
"""Part of itself by which an option may differ that optimizers compute from gradients."""


def updated(difference: Difference) -> Tensor:
    """Return what `held` does at each step: bool [T, P]."""
    return _updated(difference, slice(None))


def held(difference: Difference) -> Tensor:
    """Return the parameters that both optimizers hold at the step, and update: bool [P].

    They have a gradient in a run; or they move without, as decay moves them, and not alike: else no option tells.
    """
    return _updated(difference, difference.row)


def _updated(difference: Difference, rows: int | slice) -> Tensor:
    left, right = ({name: trace.arrays[name][rows] for name in _OF_UPDATES} for trace in difference.traces)
    both: Tensor = left["held"] & right["held"]
    with_gradient = (left["gradient/norm"] != 0) | (right["gradient/norm"] != 0)
    if not (both & ~with_gradient).any():  # as of most models: how they move is not asked
        return both
    moves = [run["weight/sketch"] - run["start/sketch"] for run in (left, right)]
    rounded = stored_rounding(difference.left, rows)
    apart = torch.linalg.vector_norm(moves[0] - moves[1], dim=-1) > _ROUNDINGS * rounded
    found: Tensor = both & (with_gradient | apart)
    return found


_ROUNDINGS = 2
"""Of a weight that is stored, by which two equal moves of it may be apart."""

_OF_UPDATES = ("held", "gradient/norm", "start/sketch", "weight/sketch")


def close(left: Tensor, right: Tensor) -> bool:
    """Tell whether two arrays of options are equal but for the rounding of a schedule's arithmetic."""
    return left.shape == right.shape and torch.allclose(left, right, rtol=1e-6, atol=0.0, equal_nan=True)
