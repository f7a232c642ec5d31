"""Updates that differ by one small factor: Adam's bias corrections, made in single precision by one run alone.

Where the number of steps t is a tensor on the GPU, as of fused or capturable optimizers, or the step is compiled,
1 - beta^t is computed in float32: it loses as many digits as it is smaller than 1 (Higham, Accuracy and Stability,
2002, section 1.7). Each update is then longer, or shorter, by one factor: in each step of the run the same way, which
no twin shows, as its rounding points anywhere.
"""

import math
from functools import cached_property

import torch
from torch import Tensor

from trainparity.parity.noise.distance import Compared, distances, norms, sketches
from trainparity.parity.noise.floor import Floor
from trainparity.parity.noise.margin import MARGIN, is_coarse, margin_of
from trainparity.parity.noise.normalisation import accumulated, before_each_step, in_lengths
from trainparity.parity.noise.widened import Widened
from trainparity.parity.recording.formats import UNIT_ROUNDOFF
from trainparity.parity.recording.trace import Trace


def further(left: Trace, right: Trace, floor: Floor) -> Floor:
    """Return the floor of two runs of which one may go a little further in each step.

    Args:
        left: The reference.
        right: The run that is compared with it.
        floor: That of the reference.
    """
    in_double = left.layout.corrected_in_double and right.layout.corrected_in_double
    if is_coarse(left.layout) or not left.layout.steps or in_double:
        return floor
    parts = torch.minimum(_parts(left), _parts(right))
    found = _Further(left, right, floor, parts)
    # What float64 rounds hides no such factor: where it is not seen, there is none.
    hidden = left.layout.unit_roundoff > UNIT_ROUNDOFF["fp64"]
    return found if parts.any() and (hidden or found.seen) else floor


class _Further(Widened):
    """The floor of updates, and weights, that are by some part longer in each step.

    Where that is seen, what they make is off by that part of what it has changed since its window began.
    """

    def __init__(self, reference: Trace, right: Trace, floor: Floor, parts: Tensor) -> None:
        super().__init__(reference, floor)
        self._right, self._possible = right, parts
        self._parts = _TIMES / margin_of(reference.layout, MARGIN) * parts

    @cached_property
    def seen(self) -> bool:
        """Whether the runs show such a factor."""
        return _is_seen(self._reference, self._right, self._floor, self._possible)

    def outgrown(self, row: int) -> tuple[str, str] | None:
        """Say why what parts from a row on may come of such a factor, where the runs show one."""
        layout = self._reference.layout
        if not self.seen or row in layout.rows_that_begin() or self._is_too_far(row):
            return super().outgrown(row)
        return (
            "updates differ by one factor, as of Adam's bias corrections in single precision, which moves weights "
            f"further apart than twins are: by step {layout.steps[row]} that may have turned a ReLU, whose gradient "
            "jumps there",
            IN_WINDOWS,
        )

    def _is_too_far(self, row: int) -> bool:
        """Tell whether gradients part in one step, from weights that are as near as the factor leaves them, by more."""
        start, gradient = (distances(self._reference, self._right, kind)[row, -1] for kind in _GIVEN)
        near = start <= margin_of(self._reference.layout, MARGIN) * self["start"][row, -1]
        return bool(near & (gradient > _OF_A_KINK))

    def _widen(self, kind: Compared, floor: Tensor) -> Tensor:
        reference = self._reference
        if kind in ("start", "weight"):
            moved = accumulated(reference, self._parts * norms(reference, "update"))
            if kind == "start":
                moved = before_each_step(reference, moved)
            return torch.maximum(floor, in_lengths(reference, kind, moved))
        if kind == "update":
            floor = torch.maximum(floor, in_lengths(reference, kind, self._parts * norms(reference, kind)))
        return floor + in_lengths(reference, kind, self._changed(kind)) if self.seen else floor

    def _changed(self, kind: Compared) -> Tensor:
        """Return the part of what tensors have changed, at most, since their window began: [T, tensors]."""
        found, largest = sketches(self._reference, kind), self._parts.amax(1, keepdim=True)
        changed = [
            torch.linalg.vector_norm(found[window] - found[window.start], dim=-1).cummax(0).values
            * largest[window].cummax(0).values
            for window in self._reference.layout.windows()
        ]
        return torch.cat(changed)


_OF_A_KINK = 0.1
"""Part of the whole gradient up to which a unit that turns for one sample may move it."""

_TIMES = 4
"""Times its part that is excused, whatever the margin is: right runs lay at up to 1.8."""


IN_WINDOWS = "start both runs from one state every few steps: with `every=` and `follow=`, or a smaller `parity.window`"
"""How such runs can be judged."""


def _is_seen(left: Trace, right: Trace, floor: Floor, parts: Tensor) -> bool:
    """Tell whether updates of the right run are longer, or shorter, by a small factor: over all tensors and steps.

    In one step, or in all that start from about the same weights and get about the same gradients; in each tensor the
    factor may be hidden by rounding.
    """
    margin = margin_of(left.layout, MARGIN)
    start, gradient = ((distances(left, right, kind) / floor[kind])[:, -1] <= margin for kind in _GIVEN)
    ours, theirs = (sketches(trace, "update") for trace in (left, right))
    each = ((theirs - ours) * ours).sum(-1) / ours.square().sum(-1)  # [T, P]; NaN of what is not updated
    alike = each[start & gradient]
    return any(_is_one_factor(values[values.isfinite()], float(parts.max())) for values in (alike.flatten(), *alike))


def _is_one_factor(values: Tensor, largest: float) -> bool:
    """Tell whether numbers [n] lie about one that is not zero, and at most so large."""
    if len(values) < _ENOUGH:
        return False
    middle = values.median()
    error = _OF_A_MEDIAN * (values - middle).abs().median() / math.sqrt(len(values))
    return bool((middle.abs() > _SURE * error) & (middle.abs() <= largest))


_GIVEN: tuple[Compared, ...] = ("start", "gradient")
"""What goes into an optimizer's step."""

_ENOUGH = 4
"""Updates of a tensor that tell a factor from chance."""

_OF_A_MEDIAN = 1.86
"""Standard error of the median of normal numbers, times the root of their count, in their median distance from it."""

_SURE = 6
"""Standard errors from which on a factor is no chance."""


def _parts(trace: Trace) -> Tensor:
    """Return the part of each update that single precision can make: float64 [T, P]; 0 of optimizers without betas."""
    arrays = trace.arrays
    most = arrays["optimizer_step"][:, None]
    # Where steps are counted, of parameters that have joined late anew; else as the trace counts its own.
    counted = torch.where(most > 0, arrays.get("state/steps", most), torch.tensor(trace.layout.steps)[:, None])
    steps = (1 + counted).double().clamp(min=1)
    if not arrays.keys() >= set(_BETAS):
        return torch.zeros_like(steps)
    first, second = (arrays[name].nan_to_num(0.0).clamp(0, 1) for name in _BETAS)
    rectified = _lost_of_variance(second, steps) if "radam" in trace.layout.optimizer.lower() else 0.0
    parts = _lost(first, steps) + (_lost(second, steps) + rectified) / 2  # which stand under a root
    return torch.where(norms(trace, "update") > 0, parts, 0.0)


_BETAS = ("setting/betas.0", "setting/betas.1")


def _lost(beta: Tensor, steps: Tensor) -> Tensor:
    """Return the part of 1 - beta^t that is lost if beta and its power are rounded to float32: float64 [T, P]."""
    power = beta**steps
    return (power / (1 - power) * _rounded(beta, steps)).nan_to_num(0.0, posinf=0.0)


def _rounded(beta: Tensor, steps: Tensor) -> Tensor:
    """Return the part of beta^t that is lost if beta and its power are rounded to float32: float64 [T, P]."""
    return (beta.float().double() - beta).abs() / beta * steps + UNIT_ROUNDOFF["fp32"] * (steps > 1)


def _lost_of_variance(beta: Tensor, steps: Tensor) -> Tensor:
    """Return the part that RAdam's term for the variance loses (arXiv 1908.03265), which is a difference: [T, P]."""
    power, longest = beta**steps, 2 / (1 - beta) - 1
    taken = 2 * steps * power / (1 - power)
    length = longest - taken
    off = taken * (_lost(beta, steps) + _rounded(beta, steps))
    part = off * (1 / (length - 4) + 1 / (length - 2) + 1 / length)
    return torch.where(length > _RECTIFIED, part, 0.0).nan_to_num(0.0, posinf=0.0)


_RECTIFIED = 5
"""Length of the approximated average from which on RAdam divides by the root of the variance."""
