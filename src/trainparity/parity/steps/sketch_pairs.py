"""What modules return in both runs, or the gradients that come back to them, with the noise floor."""

import math
from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from trainparity.parity.steps.fitting import fit
from trainparity.parity.steps.step_pair import StepPair


class Pairs:
    """A kind's sketches of both runs at the step, by name, with the floor."""

    def __init__(
        self, step: StepPair, kind: Literal["activation", "activation_gradient"], names: Sequence[str]
    ) -> None:
        self.names = list(names)
        columns = []
        for trace in step.traces:
            index = [trace.layout.activations.index(name) for name in names]
            columns.append(trace.arrays[f"{kind}/sketch"][step.row][index])
        self._left, self._right = columns
        index = [step.left.layout.activations.index(name) for name in names]
        self._floor = step.floor[kind][step.row][index]

    def in_both(self) -> list[str]:
        """Return those seen in both runs."""
        return self._where((self._left != 0).any(1) & (self._right != 0).any(1))

    def in_one(self) -> list[str]:
        """Return those seen in one run alone."""
        return self._where((self._left != 0).any(1) ^ (self._right != 0).any(1))

    def _where(self, mask: Tensor) -> list[str]:
        return [name for name, chosen in zip(self.names, mask.tolist(), strict=True) if chosen]

    def factor(self, names: Sequence[str]) -> float:
        """Return the number of times that the reference's are in the other run's."""
        index = [self.names.index(name) for name in names]
        found = fit(self._left[index].flatten(), self._right[index].flatten())[0]
        return found if found and math.isfinite(found) else 1.0

    def beyond(self, names: Sequence[str], factor: float, margin: float) -> list[str]:
        """Return those further apart, without the factor, than a margin times the floor."""
        apart = self._distances(factor)
        far = {name for name, off in zip(self.names, (apart > margin * self._floor).tolist(), strict=True) if off}
        return [name for name in names if name in far]

    def apart(self, names: Sequence[str], distance: float) -> list[str]:
        """Return those further apart than a relative distance."""
        far = set(self._where(self._distances(1.0) > distance))
        return [name for name in names if name in far]

    def same(self, names: Sequence[str], others: Sequence[str]) -> set[str]:
        """Return those that are, in both runs, one of some others under another name."""
        theirs = [self.names.index(name) for name in others]
        found = [(made[:, None] == made[theirs]).all(2).any(1) for made in (self._left, self._right)]
        return set(names) & set(self._where(found[0] & found[1]))

    def carried(self, names: Sequence[str], inside: Sequence[str]) -> bool:
        """Tell whether what is off in some names is about as far off inside, in what is another tensor than these."""
        places = [self.names.index(name) for name in names]
        apart, own = self._distances(1.0), {tuple(self._left[place].tolist()) for place in places}
        others = [place for name in inside if tuple(self._left[place := self.names.index(name)].tolist()) not in own]
        return not others or float(apart[others].amax()) > _CARRIED * float(apart[places].amax())

    def narrow(self, names: Sequence[str], floor: float) -> None:
        """Let the floor of some names be no wider than another one."""
        places = [self.names.index(name) for name in names]
        self._floor[places] = self._floor[places].clamp(max=floor)

    def lost(self) -> list[str]:
        """Return those that differ where the floor is so wide that they might be anything.

        Twins share no sign of samples known by contents that another model has made, rounded otherwise in each.
        """
        return self._where((self._distances(1.0) > _SAME) & (self._floor > _USELESS))

    def furthest(self, names: Sequence[str]) -> float:
        """Return the largest multiple of the floor among some names."""
        found = (self._distances(1.0) / self._floor).nan_to_num(0.0)
        return max((float(found[self.names.index(name)]) for name in names), default=0.0)

    def distances(self) -> list[float]:
        """Return the relative distances."""
        found: list[float] = self._distances(1.0).tolist()
        return found

    def _distances(self, factor: float) -> Tensor:
        lengths = torch.linalg.vector_norm(self._left, dim=1)
        apart = torch.linalg.vector_norm(self._right / factor - self._left, dim=1)
        whole = torch.linalg.vector_norm(lengths)
        known = torch.where(lengths > 0, lengths, whole)
        relative = torch.where(apart == 0, 0.0, apart / known).nan_to_num(0.0)
        lost = self._left.isfinite().all(1) ^ self._right.isfinite().all(1)
        return relative.masked_fill(lost, torch.inf)  # in one run alone


_CARRIED = 0.25
"""Part of the distance of the outputs' gradient that is left inside of the model."""

_SAME = 1e-6
"""Part of an activation by which it may differ and be the same in single precision."""

_USELESS = 0.25
"""Floor of an activation from which on its distance says nothing."""
