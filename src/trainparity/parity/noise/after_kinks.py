"""What gradients are apart where a number of one run alone lies on the other side of a kink, as of a ReLU.

What a model returns is continuous there, and its gradient jumps, by the part that one unit has of it for one sample. In
which step that happens is a matter of chance: three twins may meet their first kinks later than another right run.
"""

import math

import torch
from torch import Tensor

from trainparity.parity.noise.distance import SUMMED_OTHERWISE, Compared, distances, sketches
from trainparity.parity.noise.floor import NOTHING_ELSE, Floor
from trainparity.parity.noise.margin import MARGIN, is_coarse, margin_of
from trainparity.parity.noise.turned_units import OF_ONE, is_of_few, is_one_unit
from trainparity.parity.noise.twins import CARRIED, seen_as
from trainparity.parity.noise.widened import FURTHER, AfterParting, parted
from trainparity.parity.recording.names import depends_on_cut, inside
from trainparity.parity.recording.signs import signs_used
from trainparity.parity.recording.trace import Trace


def after_kinks(left: Trace, right: Trace, floor: Floor) -> Floor:
    """Return the floor of two runs of which one may have met a kink that the other did not.

    Args:
        left: The reference.
        right: The run that is compared with it.
        floor: That of the reference. A coarse format's twins meet kinks in every step.
    """
    limit = margin_of(left.layout, MARGIN) * floor["gradient"]
    if is_coarse(left.layout) or not bool((distances(left, right, "gradient") > limit).any()):
        return floor
    kinks = _Kinks(left, right, floor)
    return _AfterKinks(left, floor, kinks) if kinks.rows else floor


class _Kinks:
    """The rows in which gradients jump by as much as units turn, though what the model returns agrees.

    Of a window's first step such a jump is a fault of every step, unless it is seen to be of one unit or two, or
    gradients agree again in the next one. Once weights are parted, as many units turn for them as of all numbers are so
    near to zero.
    """

    def __init__(self, left: Trace, right: Trace, floor: Floor) -> None:
        self.rows: list[int] = []
        names, seen = left.layout.activations, right.layout.activations
        right = seen_as(left, right)
        self.apart = {kind: distances(left, right, kind) for kind in _SEEN}
        self.moved = torch.zeros_like(self.apart["start"][:, -1:])
        """How far apart gradients are for the weights that kinks have parted: [T, 1]."""
        self._parted = parted(left, right, floor["gradient"])
        self.margin = margin_of(left.layout, MARGIN)
        self._floor, self._left, self._right = floor, left, right
        self._numbers = left.arrays["activation/numbers"].double()
        self._shared = torch.tensor([name in seen and not depends_on_cut(name) for name in names], dtype=torch.bool)
        self._ends = torch.tensor([name in left.layout.outputs for name in names], dtype=torch.bool)
        self._inside = bool(inside([name for name in names if name in seen]))
        for window in left.layout.windows():
            self._look_at(window)

    def _look_at(self, window: slice) -> None:
        goes_on, met, places = {*self._left.layout.rows_that_go_on()}, False, list[frozenset[int]]()
        of_loss, chance = list[int](), 1.0
        for row in range(window.start, window.stop):
            if met:
                self.moved[row] = FURTHER * self._parted[row]
            if not bool(self._beyond("gradient", row).any()):
                continue
            again = row + 1 in goes_on and bool(self._gradient(row + 1) <= self._gradient(row) / _FALLS)
            if not self._may_be_kink(row) or not (row in goes_on or again or self._shows_few(row)):
                return
            self.rows.append(row)
            met, places = True, [*places, self._places(row)]
            if is_one_unit(places):  # which is no chance
                del self.rows[-len(places) :]
                return
            if (turns := self._chance_of_loss(row)) < 1:
                of_loss, chance = [*of_loss, row], chance * turns
            if len(of_loss) > 1 and chance < _HARDLY:  # nor is that
                del self.rows[self.rows.index(of_loss[0]) :]
                return

    def _gradient(self, row: int) -> Tensor:
        return self.apart["gradient"][row, -1]

    def _beyond(self, kind: Compared, row: int) -> Tensor:
        """Return which tensors are further apart than rounding, and weights that are parted, make them: bool [n]."""
        beyond = (self.apart[kind][row] > self._allowed(kind, row))[:-1]
        return beyond & self._shared if kind.startswith("activation") else beyond

    def _allowed(self, kind: Compared, row: int) -> Tensor:
        return self.margin * torch.maximum(self._floor[kind][row], self.moved[row])

    def _may_be_kink(self, row: int) -> bool:
        """Tell whether what comes back to a module is the first that differs in a step, by no more than units make."""
        if not self._passes_alike(row):
            return False
        back, parameters = self._beyond("activation_gradient", row), self._beyond("gradient", row)
        if bool((back & self._ends).any()) and not self._is_one_loss(row):
            return False
        # Numbers of the same bits lie on the same side.
        rounded = (self.apart["activation"][row, :-1] > SUMMED_OTHERWISE) & self._shared
        if not bool((rounded & back if self._inside else rounded).any()):
            return False
        if not self._inside:
            return not bool(parameters[-1]) and self._is_of_units("gradient", row, parameters)  # behind the last layer
        noise = self._floor["gradient"][row, :-1] >= NOTHING_ELSE  # as of a bias in front of a BatchNorm
        carried = self.apart["gradient"][row, :-1].masked_fill(noise, 0.0).max()
        further = carried > CARRIED * self.apart["activation_gradient"][row, :-1].max()
        return self._is_of_units("activation_gradient", row, back) and not bool(further)

    def _passes_alike(self, row: int) -> bool:
        """Tell whether a step begins from equal weights, and modules make the same of the samples.

        Once weights are parted, single ones are as far apart as their own floor says, and so are sums of what modules
        return that cancel, as behind a BatchNorm: then what the model returns tells.
        """
        passed = self._beyond("activation", row)
        if self.moved[row]:
            return not bool((passed & self._ends).any())
        return not bool(passed.any() or self._beyond("start", row).any())

    def _is_of_units(self, kind: Compared, row: int, back: Tensor) -> bool:
        """Tell whether what comes back differs by single terms: some of it, little, and not by a part of itself."""
        if not bool(back.any()):
            return False
        ours, theirs = (sketches(trace, kind)[row][back] for trace in (self._left, self._right))
        differs, whole = (theirs - ours)[-1], ours[-1]  # where it arises; branches join before that
        place = int(back.nonzero()[-1])
        seen = kind == "activation_gradient" and not self._ends[place]  # a loss turns for a whole sample
        rest = self._allowed(kind, row)[place] * torch.linalg.vector_norm(whole)
        if seen and not is_of_few(differs, self._signs(row, place), self._turned(row, place), float(rest)):
            return False
        units = self._numbers[row][back if kind == "activation_gradient" else slice(None)]
        part = _OF_A_UNIT * (_OF_A_MAXIMUM if seen else 1)
        of_one = (part / torch.cat([units, units.new_ones(1)]).amax().sqrt()).clamp(max=_LITTLE)
        most = of_one * (1 + self._numbers[row].sum() * self.apart["start"][row, -1]).sqrt()
        along = torch.cosine_similarity(differs, whole, dim=0).abs()
        return bool((self.apart[kind][row, :-1][back] <= most).all() and along <= _ALONG)

    def _arises(self, row: int) -> tuple[Tensor, int]:
        """Return what comes back where it differs first, as a sketch of the difference, and a unit's numbers of it.

        None where units do not show: where all share all numbers, at a loss, which turns for a whole sample, and where
        no hook sees modules.
        """
        size = self._left.layout.sketch_size
        if not self._inside:
            return torch.zeros(size), 0
        place = int(self._beyond("activation_gradient", row).nonzero()[-1])
        ours, theirs = (sketches(trace, "activation_gradient")[row, place] for trace in (self._left, self._right))
        signs = self._signs(row, place)
        return theirs - ours, 0 if signs == size or self._ends[place] else signs

    def _shows_few(self, row: int) -> bool:
        """Tell whether units show, and no more than two of them turn."""
        differs, signs = self._arises(row)
        return signs > 0 and is_of_few(differs, signs, 0, 0.0)

    def _places(self, row: int) -> frozenset[int]:
        """Return where, in a sketch, a unit has its numbers that what comes back differs by most; none of few units."""
        differs, signs = self._arises(row)
        found = differs.abs().topk(OF_ONE).indices.tolist() if signs else []
        return frozenset(found)

    def _signs(self, row: int, place: int) -> int:
        """Return how many numbers of a sketch each unit of a module has."""
        samples = self._left.arrays["num_samples"][row].sum().clamp(min=1)
        return signs_used(int(self._numbers[row, place] / samples))

    def _turned(self, row: int, place: int) -> int:
        """Return how many of a module's numbers turn for the weights that are parted, about."""
        return math.ceil(self._numbers[row, place] * self.apart["start"][row, -1]) if self.moved[row] else 0

    def _chance_of_loss(self, row: int) -> float:
        """Return the chance that something a loss is made of lies so near to a kink; 1: no loss jumps in the step."""
        turned = self._beyond("activation_gradient", row) & self._ends
        numbers = float(self._numbers[row][turned].sum()) * _MADE_OF_EACH
        return numbers * max(float(self._parted[row]), self._left.layout.unit_roundoff) if numbers else 1.0

    def _is_one_loss(self, row: int) -> bool:
        """Tell whether both runs have one loss in a step: its own kinks, as of a distance, leave it the same."""
        left, right = (float(trace.arrays["rank/loss"][row].mean()) for trace in (self._left, self._right))
        return abs(left - right) <= self.margin * (self._left.layout.unit_roundoff + float(self.moved[row])) * abs(left)


_SEEN: tuple[Compared, ...] = ("start", "activation", "activation_gradient", "gradient")

_FALLS = 4
"""Times that gradients are nearer again in the step after a kink, where that parts the weights by little."""

_OF_A_UNIT = 8
"""Parts of the gradient of so many random terms that one of them makes, at most; 3.5 were seen."""

_OF_A_MAXIMUM = 2
"""Times that one makes of it where few numbers come back, as to a maximum over four of which half are zero."""

_LITTLE = 0.1
"""Part of a gradient up to which one unit may move it, however few there are."""

_ALONG = 0.5
"""Cosine of the angle to the gradient itself up to which a difference is one of few terms, not of a factor."""

_MADE_OF_EACH, _HARDLY = 64, 1e-4
"""Numbers that a loss makes of each that it is given, as by pairs; the chance of several steps which is none."""

_WITHIN = 4
"""Times the jump of a kink that is excused there, whatever the margin is."""


class _AfterKinks(AfterParting):
    """A floor that excuses kinks, and what they have made of later steps."""

    def __init__(self, reference: Trace, floor: Floor, kinks: _Kinks) -> None:
        met = torch.zeros_like(kinks.moved)
        met[kinks.rows] = _WITHIN / kinks.margin
        gradient, back = (
            torch.maximum(met * kinks.apart[kind], kinks.moved) for kind in ("gradient", "activation_gradient")
        )
        super().__init__(reference, floor, gradient, back, kinks.moved)
