"""What gradients are apart where a number of one run alone lies on the other side of a kink, as of a ReLU.

What a model returns is continuous there, and its gradient jumps, by the part that one unit has of it for one sample. In
which step that happens is a matter of chance: three twins may meet their first kinks later than another right run.
"""

import torch
from torch import Tensor

from trainparity.parity.noise.distance import Compared, distances, sketches
from trainparity.parity.noise.floor import Floor, running_maximum
from trainparity.parity.noise.margin import MARGIN, is_coarse, margin_of
from trainparity.parity.noise.normalisation import amplified, before_each_step, passed_on
from trainparity.parity.noise.widened import Widened
from trainparity.parity.recording.trace import Trace


def after_kinks(left: Trace, right: Trace, floor: Floor) -> Floor:
    """Return the floor of two runs of which one may have met a kink that the other did not.

    Args:
        left: The reference.
        right: The run that is compared with it.
        floor: That of the reference. A coarse format's twins meet kinks in every step.
    """
    if is_coarse(left.layout) or not left.layout.steps:
        return floor
    kinks = _Kinks(left, right, floor)
    return _AfterKinks(left, floor, kinks) if kinks.rows else floor


class _Kinks:
    """The rows in which gradients jump by as much as units turn, though what the model returns agrees.

    Of a window's first step such a jump is a fault of every step, unless gradients agree again in the next one. Once
    weights are parted, as many units turn for them as of all numbers are so near to zero.
    """

    def __init__(self, left: Trace, right: Trace, floor: Floor) -> None:
        self.rows: list[int] = []
        self.apart = {kind: distances(left, right, kind) for kind in _SEEN}
        self.moved = torch.zeros_like(self.apart["start"][:, -1:])
        """How far apart gradients are for the weights that kinks have parted: [T, 1]."""
        self.jumped = self.moved.clone()
        """The same for the units that these weights turn."""
        self._floor, self._layout = floor, left.layout
        self.margin = margin_of(left.layout, MARGIN)
        self._numbers = left.arrays["activation/numbers"].double()
        self._losses = [trace.arrays["rank/loss"].mean(1) for trace in (left, right)]
        self._back = [sketches(trace, "activation_gradient") for trace in (left, right)]
        outputs = [name in left.layout.outputs for name in left.layout.activations]
        self._outputs = torch.tensor(outputs, dtype=torch.bool)
        if bool((self.apart["gradient"] > self.margin * floor["gradient"]).any()):
            for window in left.layout.windows():
                self._look_at(window)

    def _look_at(self, window: slice) -> None:
        goes_on, unit = {*self._layout.rows_that_go_on()}, 0.0
        for row in range(window.start, window.stop):
            if unit:
                parted = self.apart["start"][row, -1]
                self.moved[row] = _FURTHER * parted
                self.jumped[row] = unit * (1 + self._numbers[row].sum() * parted).sqrt()
            if not bool(self._beyond("gradient", row).any()):
                continue
            again = row + 1 in goes_on and bool(self._gradient(row + 1) <= self._gradient(row) / _FALLS)
            if not self._may_be_kink(row) or not (row in goes_on or again):
                return
            self.rows.append(row)
            unit = max(unit, float(self.apart["gradient"][row, :-1].max()))

    def _gradient(self, row: int) -> Tensor:
        return self.apart["gradient"][row, -1]

    def _beyond(self, kind: Compared, row: int) -> Tensor:
        """Return which tensors of a kind are further apart than rounding, and weights that are parted, make them."""
        allowed = self.margin * torch.maximum(self._floor[kind][row], self.moved[row])
        if kind in ("gradient", "activation_gradient"):
            allowed = torch.maximum(allowed, _WITHIN * self.jumped[row])
        return self.apart[kind][row] > allowed

    def _may_be_kink(self, row: int) -> bool:
        """Tell whether what comes back to a module is the first that differs in a step, by no more than units make."""
        if any(bool(self._beyond(kind, row).any()) for kind in ("start", "activation")):
            return False
        back = self._beyond("activation_gradient", row)[:-1]
        if not bool(back.any()) or bool((back & self._outputs).any() and not self._is_one_loss(row)):
            return False
        return self._is_of_units(row, back)

    def _is_of_units(self, row: int, back: Tensor) -> bool:
        """Tell whether what comes back to modules differs by single terms: little, and not by a part of itself."""
        units = self._numbers[row][back].amax().clamp(min=1)
        little = self.apart["activation_gradient"][row, :-1][back] <= (_OF_A_UNIT / units.sqrt()).clamp(max=_LITTLE)
        ours, theirs = (found[row][back] for found in self._back)
        along = torch.cosine_similarity(theirs - ours, ours).abs()
        return bool(little.all() and along.min() <= _ALONG)

    def _is_one_loss(self, row: int) -> bool:
        """Tell whether both runs have one loss in a step: its own kinks, as of a distance, leave it the same."""
        left, right = (float(losses[row]) for losses in self._losses)
        return abs(left - right) <= self.margin * self._layout.unit_roundoff * abs(left)


_SEEN: tuple[Compared, ...] = ("start", "activation", "activation_gradient", "gradient")

_FALLS = 4
"""Times that gradients are nearer again in the step after a kink, where that parts the weights by little."""

_FURTHER = 4
"""Times that gradients are further apart than all weights together, once these have parted."""

_OF_A_UNIT = 16
"""Parts of the gradient of so many random terms that one of them makes, at most; 5 were seen."""

_LITTLE = 0.1
"""Part of a gradient up to which one unit may move it, however few there are."""

_ALONG = 0.5
"""Cosine of the angle to the gradient itself up to which a difference is one of few terms, not of a factor."""

_WITHIN = 4
"""Times the jump of a kink that is excused there, whatever the margin is."""


class _AfterKinks(Widened):
    """A floor that excuses kinks, and what they have made of later steps."""

    def __init__(self, reference: Trace, floor: Floor, kinks: _Kinks) -> None:
        super().__init__(reference, floor)
        within, met = _WITHIN / kinks.margin, torch.zeros_like(kinks.moved)
        met[kinks.rows] = within
        self._moved, jumped = kinks.moved, torch.maximum(kinks.moved, within * kinks.jumped)
        self._jumped = {kind: torch.maximum(met * kinks.apart[kind], jumped) for kind in _SEEN}

    def _widen(self, kind: Compared, floor: Tensor) -> Tensor:
        if kind == "gradient" or kind == "activation_gradient":
            return torch.maximum(floor, self._jumped[kind])
        if kind == "activation" or kind == "buffer":
            return torch.maximum(floor, self._moved)
        if kind == "start":
            return torch.maximum(floor, before_each_step(self._reference, self["weight"]))
        # Momentum carries on what a kink has made.
        gradient = running_maximum(self._reference, self._jumped["gradient"])
        for made_of in (passed_on, amplified):
            floor = torch.maximum(floor, made_of(self._reference, kind, gradient))
        return floor
