"""Where on the way of one step two runs part: what modules return, and the gradients that come back through them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor

from trainparity.parity.fitting import fit

if TYPE_CHECKING:
    from trainparity.parity.difference import Difference


@dataclass(frozen=True)
class Chain:
    """One step's forward and backward passes in both runs, compared where both have recorded them."""

    names: list[str]
    """What both runs have seen, in the reference's order."""
    outputs: list[str]
    """What the loop got from the model or from parts of it, in that order."""
    forward: list[str]
    """Those whose values are beyond the margin."""
    given_back: list[str]
    """Those through which a gradient came in both runs."""
    factor: float
    """The other run's gradient of the last output, as a multiple of the reference's; 1 where none was seen."""
    backward: list[str]
    """Those whose gradient is beyond the margin when that factor is taken away."""

    @classmethod
    def of(cls, difference: "Difference") -> "Chain":
        """Compare the step's passes."""
        layouts = difference.left.layout, difference.right.layout
        names = [name for name in layouts[0].activations if name in layouts[1].activations]
        values = _Pairs(difference, "activation", names)
        gradients = _Pairs(difference, "activation_gradient", names)
        outputs = [name for name in layouts[0].outputs if name in layouts[1].outputs]
        given_back = gradients.in_both()
        last = next((name for name in reversed(outputs) if name in given_back), None)
        factor = gradients.factor(last) if last else 1.0
        return cls(
            names=names,
            outputs=outputs,
            forward=values.beyond(names, 1.0),
            given_back=given_back,
            factor=factor,
            backward=gradients.beyond(given_back, factor),
        )

    @property
    def judged(self) -> str | None:
        """The last output whose gradient was seen in both runs: the loss is computed from it."""
        return next((name for name in reversed(self.outputs) if name in self.given_back), None)

    @property
    def outputs_agree(self) -> bool | None:
        """Whether all that the model returned agrees; None if nothing was recorded."""
        return None if not self.outputs else not set(self.outputs) & set(self.forward)


class _Pairs:
    """A kind's sketches of both runs at the step, by name, with the floor."""

    def __init__(
        self, difference: "Difference", kind: Literal["activation", "activation_gradient"], names: Sequence[str]
    ) -> None:
        self.names = list(names)
        self._margin = difference.margin
        columns = []
        for trace in (difference.left, difference.right):
            index = [trace.layout.activations.index(name) for name in names]
            columns.append(trace.arrays[f"{kind}/sketch"][difference.row][index])
        self._left, self._right = columns
        index = [difference.left.layout.activations.index(name) for name in names]
        self._floor = difference.floor[kind][difference.row][index]

    def in_both(self) -> list[str]:
        seen = (self._left != 0).any(1) & (self._right != 0).any(1)
        return [name for name, both in zip(self.names, seen.tolist(), strict=True) if both]

    def factor(self, name: str) -> float:
        index = self.names.index(name)
        return fit(self._left[index], self._right[index])[0] or 1.0

    def beyond(self, names: Sequence[str], factor: float) -> list[str]:
        apart = self._distances(factor)
        far = {name for name, off in zip(self.names, (apart > self._margin * self._floor).tolist(), strict=True) if off}
        return [name for name in names if name in far]

    def _distances(self, factor: float) -> Tensor:
        lengths = torch.linalg.vector_norm(self._left, dim=1)
        apart = torch.linalg.vector_norm(self._right / factor - self._left, dim=1)
        whole = torch.linalg.vector_norm(lengths)
        known = torch.where(lengths > 0, lengths, whole)
        return torch.where(apart == 0, 0.0, apart / known).nan_to_num(0.0)
