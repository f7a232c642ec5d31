"""The noise floor: how far correct runs drift apart from rounding alone, measured on twins of the reference."""

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from trainparity.parity.noise.cancelling_biases import of_cancelling_biases, of_one_sided_means
from trainparity.parity.noise.distance import KINDS, Compared, distances, names, norms, ratio, sizes, with_all
from trainparity.parity.noise.jumps import jumping, without_jumps
from trainparity.parity.noise.margin import is_coarse
from trainparity.parity.noise.normalisation import (
    amplified,
    of_nothing,
    passed_on,
)
from trainparity.parity.noise.rounding import rounding, stored_rounding
from trainparity.parity.noise.twins import FEW, of_another_run, of_another_update, seen_as
from trainparity.parity.noise.unrecorded_steps import left_to_rounding
from trainparity.parity.recording.integrity import flaw
from trainparity.parity.recording.trace import Trace, comparable
from trainparity.records.base import RecordError
from trainparity.records.numbers import exact

_COMPARED: tuple[Compared, ...] = ("activation_gradient", *KINDS, "activation", "start")


class Floor(Protocol):
    """How far correct runs may be apart."""

    calibrated: bool
    """Whether it was measured on twins."""
    same_samples: bool
    """Whether twins showed that samples known by their contents keep them: those that a model made do not."""
    kept_samples: frozenset[int]
    """Of a model that makes some those that it is given from outside, as all twins have them; empty where all keep."""
    flaw: str | None
    """Why the floor cannot excuse a distance everywhere: the first place where a twin is not finite, or lost."""
    losses: Tensor
    """By which part of it a step's loss may have another value: float64 [T]; infinite where nobody has measured it."""

    def __getitem__(self, kind: Compared) -> Tensor:
        """Return a kind's floor: float64 [T, tensors + 1], columns as in `distance.names`."""

    def nearest(self, kind: Compared) -> Tensor:
        """Return how far the twin is that is the nearest: float64 [T, tensors + 1]; without twins the floor."""


class NoiseFloor:
    """floor(t): the largest distance reference - twin up to step t of t's window, by kind and tensor.

    A twin starts each window half an ulp away and visits each global batch in another order (perturbation-
    calibrated thresholds: TTrace, arXiv 2506.09280). The floor is never below what one rounding makes.
    """

    calibrated = True

    def __init__(self, reference: Trace, twins: Sequence[Trace]) -> None:
        """Measure the floor between a reference and at least one twin with the reference's layout.

        Raises:
            RecordError: one of the traces is damaged.
        """
        if not twins:
            raise ValueError("a noise floor needs at least one twin of the reference")
        for trace in (reference, *twins):
            if found := flaw(trace.layout, trace.arrays) or comparable(reference.layout, trace.layout):
                name = f"twin {trace.layout.twin}" if trace.layout.twin else "the reference"
                raise RecordError(f"there is no noise floor: {name}: {found}")
        self.reference = reference
        twins = [seen_as(reference, twin) for twin in twins]
        self.flaw: str | None = of_another_run(reference, twins)
        self.same_samples = all(torch.equal(reference.arrays["samples"], twin.arrays["samples"]) for twin in twins)
        self.kept_samples = frozenset[int]() if self.same_samples else _kept_samples(reference, *twins)
        self.losses = _of_losses(reference, twins)
        self._floors: dict[Compared, Tensor] = {}
        self._nearest: dict[Compared, Tensor] = {}
        self._of_biases = of_cancelling_biases(reference)
        self._noisy = torch.stack([(norms(twin, "gradient") != 0).any(0) for twin in twins]).any(0)
        for kind in _COMPARED:
            self._floors[kind] = self._measure(twins, kind)
        self.flaw = self.flaw or of_another_update(reference, twins, self._floors["gradient"])

    def __getitem__(self, kind: Compared) -> Tensor:
        """Return a kind's floor: float64 [T, tensors + 1], columns as in `distance.names`."""
        return self._floors[kind]

    def nearest(self, kind: Compared) -> Tensor:
        """Return how far the twin is that is the nearest: float64 [T, tensors + 1]."""
        return self._nearest[kind]

    def _measure(self, twins: Sequence[Trace], kind: Compared) -> Tensor:
        reference = self.reference
        apart = torch.stack([self._known(twin, kind) for twin in twins])
        self._nearest[kind] = apart.nan_to_num(torch.inf).amin(0)
        measured = torch.maximum(apart.amax(0), rounding(reference, kind))
        if kind == "update":  # before weights, which these make
            self._of_updates, measured = apart, without_jumps(reference, measured)
        if kind in ("update", "weight"):
            measured = torch.maximum(measured, jumping(reference, kind, self._of_updates))
        floor = running_maximum(reference, self._widened(kind, apart, measured))
        if kind in KINDS:
            # What an optimizer does with signs may widen a floor at once; what twins measure, to where it was before.
            jump = self._jump(kind, floor) and self._jump(kind, running_maximum(reference, measured))
            self.flaw = self.flaw or self._not_finite(twins, kind, apart) or jump
        return floor

    def _known(self, twin: Trace, kind: Compared) -> Tensor:
        """Return the distance of a twin: float64 [T, tensors + 1]; NaN where it is infinite, or a large tensor is lost.

        A step of Adam that one twin alone does not make, as its gradient is zero, is not lost where that is rounding.
        """
        apart, (ours, theirs) = distances(self.reference, twin, kind), (norms(t, kind) for t in (self.reference, twin))
        lost = (theirs == 0) & (ours > _LARGE * torch.linalg.vector_norm(ours, dim=1, keepdim=True))
        if kind == "update":  # weights in bf16 take no update that is less than half of their last place
            lost &= ours > 2 * stored_rounding(self.reference)
            lost &= self._floors["gradient"][:, :-1] < NOTHING_ELSE
        apart[:, :-1][lost] = torch.nan
        return torch.where(apart.isfinite(), apart, torch.nan)

    def _widened(self, kind: Compared, apart: Tensor, floor: Tensor) -> Tensor:
        """Return a kind's floor with what few twins show by chance alone."""
        reference = self.reference
        if kind == "gradient":
            one_sided = of_one_sided_means(reference, self._floors["activation_gradient"])
            self._of_biases = torch.maximum(self._of_biases, one_sided)
            floor = torch.maximum(floor, self._of_biases)
        if kind in ("update", "weight"):
            floor = torch.maximum(floor, amplified(reference, kind, self._floors["gradient"]))
            floor = torch.maximum(floor, of_nothing(reference, kind, self._noisy))
            floor = torch.maximum(floor, passed_on(reference, kind, self._of_biases))
        if kind == "update" and is_coarse(reference.layout):
            floor = floor.clamp(min=reference.layout.unit_roundoff)  # a sum of gradients rounds once more, or not
        if kind == "weight":
            floor = torch.maximum(floor, _of_few_numbers(reference, apart))
        if kind in ("start", "weight"):
            floor = torch.maximum(floor, left_to_rounding(reference, kind, self._floors["update"]))
        return floor

    def _not_finite(self, twins: Sequence[Trace], kind: Compared, apart: Tensor) -> str | None:
        """Name the first distance of a twin that is not known."""
        places = apart.isnan().nonzero().tolist()
        if not places:
            return None
        index, row, column = min(places, key=lambda place: place[1])
        where = f"{kind} {names(self.reference, kind)[column]} at step {self.reference.layout.steps[row]}"
        return f"twin {twins[index].layout.twin or index + 1} is not finite, or lost, in {where}"

    def _jump(self, kind: Compared, floor: Tensor) -> str | None:
        """Name a step in which the floor of all tensors of a kind becomes useless at once: rounding grows slowly."""
        steps, rounded = self.reference.layout.steps, rounding(self.reference, kind)[:, -1]
        width = self._without_noise(kind, floor)
        still = norms(self.reference, "update").sum(1) == 0  # as in a warm-up that begins at a learning rate of zero
        for window in self.reference.layout.windows():
            for row in range(window.start + 1, window.stop):
                if kind == "update" and still[row - 1]:
                    continue
                before = max(float(width[row - 1]), float(rounded[row]))
                if float(width[row]) > max(_USELESS, _JUMP * before):
                    return (
                        f"the twins' {kind}s part from {exact(before, 2)} to {exact(float(width[row]), 2)} between "
                        f"steps {steps[row - 1]} and {steps[row]}, which rounding does only where a number lies at a "
                        "kink, as of a ReLU, a maximum or a tie; else the same code and seed do not make the same run"
                    )
        return None

    def _without_noise(self, kind: Compared, floor: Tensor) -> Tensor:
        """Return the floor of all tensors of a kind together without those that rounding alone moves: float64 [T].

        As the bias of a critic's last layer, whose gradient is one less one: Adam makes whole steps of what is left.
        """
        if kind not in ("update", "weight"):
            return floor[:, -1]
        gradients, own = (with_all(norms(self.reference, name).double()) for name in ("gradient", kind))
        noise = self._floors["gradient"][:, :-1] * _or_all(gradients)
        still = (noise >= NOTHING_ELSE * gradients[:, :-1]).cummax(0).values
        rest = torch.linalg.vector_norm((floor[:, :-1] * _or_all(own)).masked_fill(still, 0.0), dim=1)
        return torch.minimum(floor[:, -1], ratio(rest, own[:, -1]))


def _losses(trace: Trace) -> Tensor:
    """Return the loss of each step, the mean over ranks: float64 [T]; NaN where it was not recorded."""
    if "rank/loss" not in trace.arrays:
        return torch.full((len(trace.layout.steps),), torch.nan, dtype=torch.float64)
    return trace.arrays["rank/loss"].double().flatten(1).mean(1)


def _or_all(lengths: Tensor) -> Tensor:
    """Return what distances are relative to, of lengths [T, P + 1]: a tensor's own, or that of all where it is zero."""
    return torch.where(lengths[:, :-1] > 0, lengths[:, :-1], lengths[:, -1:])


def _of_losses(reference: Trace, twins: Sequence[Trace]) -> Tensor:
    """Return by which part of the reference's the losses of twins are another: float64 [T]; infinite: not recorded."""
    losses = [_losses(trace) for trace in (reference, *twins)]
    apart = torch.stack([(theirs - losses[0]).abs() / losses[0].abs() for theirs in losses[1:]]).amax(0)
    return running_maximum(reference, apart.nan_to_num(torch.inf))


def _kept_samples(*traces: Trace) -> frozenset[int]:
    seen = (frozenset(trace.arrays["sample_ids"].flatten().tolist()) for trace in traces)
    return frozenset.intersection(*seen) - {0}


NOTHING_ELSE = 0.5
"""Floor of a gradient from which on it is nothing but rounding."""

_USELESS = 0.03
"""Floor that excuses half of a whole gradient at the default margin."""

_JUMP = 1e3
"""Growth of the floor between two traced steps of a window that rounding does not reach."""

_LARGE = 1e-3
"""Part of a kind's whole length from which a tensor that is exactly zero in a twin alone is lost."""


def _of_few_numbers(reference: Trace, apart: Tensor) -> Tensor:
    """Return how far weights of few numbers are apart on the whole, as floor: float64 [T, P + 1]; zero for others.

    One number of a twin comes as near to the reference's as chance will have it, and a weight that passes zero is small
    where its rounding is not: the root mean square over all steps and twins stands for both.
    """
    lengths = norms(reference, "weight").double()
    few = sizes(reference.layout) < FEW
    absolute = (apart[..., :-1] * lengths).square().nanmean((0, 1)).sqrt()
    floor = torch.where(few & (lengths > 0), absolute / lengths, 0.0).nan_to_num(0.0, posinf=0.0)
    return torch.nn.functional.pad(floor, (0, 1))


def running_maximum(reference: Trace, floor: Tensor) -> Tensor:
    """Let the floor never fall within a window; NaN, where it is not known, stays until the window ends."""
    if not floor.numel():
        return floor
    return torch.cat([floor[window].cummax(0).values for window in reference.layout.windows()])
