"""The backward passes of one step: which of them belong to the training, and what each has made."""

from collections.abc import Sequence, Set
from dataclasses import dataclass, field

import torch
from torch import Tensor

SIZE = 256
"""Numbers that a micro-batch's whole gradient is projected to."""

MAX_MICRO_BATCHES = 64
"""Micro-batches of a step and rank that are kept one by one."""


@dataclass
class BackwardPass:
    """One that has come to a parameter."""

    number: int
    """As autograd counts them."""
    captured: bool
    """Whether `torch.autograd.grad` hands the parameters' gradients to the loop: what they hold stays as it is."""
    square: float = 0.0
    """Of the L2 norm of the gradients that were there before it."""
    reached: set[int] = field(default_factory=set)
    """The parameters that it came to, by identity; of passes that are not kept one by one, none."""
    sketch: Tensor = field(default_factory=lambda: torch.zeros(SIZE, dtype=torch.float64))
    """Of all gradients that it made, when it has ended."""
    _signs: list[float] = field(default_factory=list)
    _sketches: list[Tensor] = field(default_factory=list)

    def hold(self, length: Tensor) -> None:
        """Add the L2 norm of a gradient that was there before."""
        self.square += float(length) ** 2

    def make(self, sign: int, sketch: Tensor) -> None:
        """Add the sketch of a parameter's gradient, which has a sign of its own."""
        self._signs.append(sign)
        self._sketches.append(sketch)

    def end(self) -> None:
        """Add up what it made."""
        if self._sketches:
            self.sketch = torch.tensor(self._signs, dtype=torch.float64) @ torch.stack(self._sketches)
        self._signs, self._sketches = [], []


class BackwardPasses:
    """Those of a step, in their order."""

    def __init__(self) -> None:
        self._all: list[BackwardPass] = []
        self._of_inputs: set[int] = set()

    def __len__(self) -> int:
        return len(self._all)

    @property
    def last(self) -> BackwardPass:
        """The one that began last."""
        return self._all[-1]

    def enter(self, number: int, *, captured: bool) -> None:
        """Add one that comes to a parameter."""
        self._all.append(BackwardPass(number, captured))

    def came_to_inputs(self, number: int, before: int) -> None:
        """Note one that has ended, and that can't be differentiated again, if it came to no parameter.

        Args:
            number: Its own.
            before: How many there were when it began.
        """
        if len(self._all) == before:
            self._of_inputs.add(number)

    def _training(self) -> Sequence[BackwardPass]:
        return [one for one in self._all if not one.captured] or self._all

    @property
    def trained(self) -> int:
        """How many belong to the training."""
        return len(self._training())

    @property
    def aside(self) -> Set[int]:
        """Those beside the training, by their numbers: the loop asks what a gradient is, and adds another.

        As for the norm of each term's, that it logs, or weighs the terms by; or for an attack on the samples, which
        comes to no parameter. A loop that is handed all of its gradients trains with them.
        """
        captured = {one.number for one in self._all} - {one.number for one in self._training()}
        return captured | (self._of_inputs if self._all else set())

    @property
    def thrown_away(self) -> Set[int]:
        """Those, by their numbers, whose gradients are gone when a later one begins."""
        found: set[int] = set()
        for place, later in enumerate(self._all):
            if not later.square:
                found |= {one.number for one in self._all[:place] if not one.reached.isdisjoint(later.reached)}
        return found

    def sketch_without(self, gone: Set[int]) -> Tensor:
        """Return the sketch of what they made, but for those `gone`, by their numbers: float64 [SIZE]."""
        rest = [one.sketch for one in self._training() if one.number not in gone]
        return torch.stack(rest).sum(0) if rest else torch.zeros(SIZE, dtype=torch.float64)

    def held(self) -> Tensor:
        """Return the L2 norms of the gradients that were there before each: float64 [M]."""
        kept = self._training()[:MAX_MICRO_BATCHES]
        return torch.tensor([one.square for one in kept], dtype=torch.float64).sqrt()

    def sketches(self) -> Tensor:
        """Return the sketches of each one's own gradient: float64 [M, SIZE]."""
        kept = [one.sketch for one in self._training()[:MAX_MICRO_BATCHES]]
        return torch.stack(kept) if kept else torch.zeros(0, SIZE, dtype=torch.float64)
