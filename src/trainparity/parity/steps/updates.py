"""Updates that differ in a coarse format though what goes into the optimizer's step agrees.

The floor of updates is wide there: twins' gradients are apart, and an optimizer that takes a sign or decomposes a
matrix turns a little of a gradient into much of an update. Where gradients agree, it excuses too much.
"""

import torch
from torch import Tensor

from trainparity.parity.noise.distance import Compared, norms, sizes, sketches, times
from trainparity.parity.noise.margin import is_coarse
from trainparity.parity.noise.normalisation import decomposed, in_lengths, turned_by
from trainparity.parity.noise.rounding import rounding
from trainparity.parity.steps.step_pair import StepPair


def made_otherwise(step: StepPair) -> list[str]:
    """Return the parameters whose update differs by more than the optimizer's own arithmetic can round.

    That is more than twins' updates differ by, as twins' gradients are further apart than an optimizer rounds them; or
    what differs is a sum of weights, gradient and update, as by another decay, factor or momentum: rounding is not. Of
    gradients and weights that have been the same since the window began any such update is another one.
    """
    left, right, row = step.left, step.right, step.row
    apart, given = (step.distances(kind)[row, :-1] for kind in ("update", "gradient"))
    more = torch.logical_and(*step.at("held")) & (apart > _OWN) & (apart > _AMPLIFIED * given)
    if not more.any() or not step.same_precision or not _given_alike(step):
        return []
    coarse = is_coarse(left.layout)
    narrow = ~(coarse | decomposed(left.layout))  # there the floor excuses nothing but what gradients are apart
    more &= apart > _ROUNDED * torch.maximum(rounding(left, "update"), rounding(right, "update"))[row, :-1]
    # Else twins' updates have little in common, or it is not known what they have.
    alike = step.noise("update") <= 1 / _OF_EQUALS and step.floor.calibrated
    wide = torch.maximum(_OF_EQUALS * step.floor["update"][row, :-1], turned_by(left, step.distances("gradient"))[row])
    further = coarse & alike & (apart > wide)
    return step.named(more & (further | _given_the_same(step) | (_explained(step) & ~narrow)))


def traced_since(step: StepPair) -> slice | None:
    """Return the rows of the window up to the step; None where a step of it was not traced."""
    row, layout = step.row, step.left.layout
    start = next(window.start for window in layout.windows() if window.start <= row < window.stop)
    window = layout.window or layout.steps[-1] + 1
    if layout.steps[start] % window or layout.steps[row] - layout.steps[start] != row - start:
        return None
    return slice(start, row + 1)


def evaluated_several_times(step: StepPair, rows: slice) -> bool:
    """Tell whether a run evaluates the loss several times in a step: gradients are the first evaluation's alone."""
    return any(bool(trace.arrays[name][rows].any()) for trace in step.traces for name in _SEVERAL_TIMES)


_SEVERAL_TIMES = ("closure/again", "closure/evaluations")


def _given_alike(step: StepPair) -> bool:
    """Tell whether weights and gradients agree far better than the twins' since the window began, and as applied."""
    rows = traced_since(step)
    if rows is None or evaluated_several_times(step, rows):
        return False
    near = [times(step.distances(kind)[rows, :-1], step.floor[kind][rows, :-1]) for kind in _GIVEN]
    finite = all(bool(norms(trace, "gradient")[rows].isfinite().all()) for trace in step.traces)
    applied, other = (trace.arrays["applied/norm"][rows] for trace in step.traces)
    kept = torch.allclose(applied, other, rtol=_OWN, atol=0.0)
    return finite and kept and all(bool((each <= _NEAR).all()) for each in near)


def _given_the_same(step: StepPair) -> Tensor:
    """Tell of which parameters all that goes into the steps since the window began is the same, to the bit: bool [P].

    A gradient that no step finds, as a loop takes it to copies, says nothing. Of PyTorch's own optimizers alone it is
    known that they compute no update in a coarse format, and of Muon that it does, in which rounding jumps.
    """
    jumps = torch.stack([decomposed(trace.layout) for trace in step.traces]).any(0)
    known = ~jumps | (step.distances("update")[step.row, :-1] > _JUMP)
    rows = traced_since(step) if all(trace.layout.without_limit for trace in step.traces) else None
    same = rows is not None and not any(bool(step.distances(kind)[rows].any()) for kind in _GIVEN)
    return known & same & (norms(step.left, "gradient")[step.row] > 0)


_GIVEN: tuple[Compared, ...] = ("gradient", "start")
"""What goes into an optimizer's step."""


def parted_before(step: StepPair) -> int | None:
    """Return the first row before the step in which weights of the same bits and near gradients get another update.

    In a coarse format, and where a matrix is decomposed for its update, weights that other updates have made for some
    steps may still be within the floor. Gradients that are within a quarter of their floor turn updates by half of
    theirs at most, as the part of the numbers that turn, or round the other way, is as large as the gradients are
    apart, and the distance is its root: but for those of which many numbers are smaller than what gradients are apart,
    as a layer's whose rows are given little yet. Where matrices are decomposed they jump as far whatever these are.
    """
    rows, jumps = traced_since(step), bool(decomposed(step.left.layout).any())
    known = is_coarse(step.left.layout) or jumps
    if not known or not step.same_precision or rows is None:
        return None
    if evaluated_several_times(step, rows):
        return None
    off = {kind: (step.distances(kind)[rows, -1], step.floor[kind][rows, -1]) for kind in _PARTED}
    (start, _), (gradient, noise), (update, width) = (off[kind] for kind in _PARTED)
    turned = turned_by(step.left, step.distances("gradient")) * norms(step.left, "update")
    width = torch.maximum(
        (_OF_EQUALS if jumps else _NEAR**0.5) * width, in_lengths(step.left, "update", turned)[rows, -1]
    )
    found = (start == 0) & (gradient <= _NEAR * noise) & (update > width)
    places = found[:-1].nonzero().flatten().tolist()
    return rows.start + places[0] if places else None


_PARTED: tuple[Compared, ...] = ("start", "gradient", "update")


def _explained(step: StepPair) -> Tensor:
    """Return the parameters in which what differs of the update is a sum of few known directions: bool [P].

    These are weights, update and gradient of the step, and the gradient of the step before.
    """
    left, row = step.left, step.row
    before = max(row - 1, 0)
    known = [sketches(left, "start")[row], sketches(left, "update")[row], sketches(left, "gradient")[row]]
    known.append(sketches(left, "gradient")[before])
    differs = sketches(step.right, "update")[row] - sketches(left, "update")[row]
    basis = torch.nn.functional.normalize(torch.stack(known, 2), dim=1)
    target = torch.nn.functional.normalize(differs, dim=1)[..., None]
    left_over = target - basis @ (torch.linalg.pinv(basis, rtol=_INDEPENDENT) @ target)
    enough = sizes(left.layout) >= _NUMBERS
    unexplained: Tensor = torch.linalg.vector_norm(left_over, dim=(1, 2))
    return enough & (unexplained < _LEFT_OVER)


_NEAR = 1 / 4
"""Floors by which what goes into a step may be apart: its update is then apart by what the optimizer rounds."""

_OF_EQUALS = 2
"""Floors that such an update may be apart; 1.4 were seen, of Newton and Schulz's iteration in bf16 against fp32."""

_ROUNDED = 16
"""Roundings of the weights that such an update may be apart."""

_OWN = 1e-3
"""Part of an update that an optimizer in single precision may round: 1 - beta2, as Adam divides by it, loses 1e-4."""

_AMPLIFIED = 16
"""How many times further than its gradient an update may be apart for that alone."""

_LEFT_OVER = 0.25
"""Part of what differs that no known direction explains; of rounding nearly all is."""

_INDEPENDENT = 1e-4
"""Part of the longest direction below which another one adds nothing."""

_JUMP = 0.1
"""Part of an update that the rounding of Newton and Schulz's iteration does not reach; 0.03 were seen."""

_NUMBERS = 32
"""Numbers of a parameter of which four directions explain a small part by chance."""
