"""What is measured of tensors that come one by one, as hooks hand them over."""

from collections.abc import Callable

import torch
from torch import Tensor

from trainparity.parity.recording.stacks import Measure, Stack, Stacks, alone, on_cpu


class Later:
    """A measure of tensors that come one by one: of each it is told when all have come."""

    def __init__(self, measure: Measure) -> None:
        self._measure = measure
        self.drop()

    def add(self, tensor: Tensor, tell: Callable[[Tensor], object], *, copied: bool = False) -> None:
        """Measure a tensor; `tell` is given what was measured, later.

        Args:
            tensor: It.
            tell: What takes the measure, [...] on the CPU.
            copied: Whether to take a copy of what waits, as the tensor may be changed.
        """
        self._told.append(tell)
        place = len(self._told) - 1
        if _beside(tensor.device):
            self._places.append(place)
            self._made.append(self._measure(alone(place, tensor)).cpu())
        elif full := self._stacks.add(place, tensor, copied=copied):
            self._look(full)

    def _look(self, stack: Stack) -> None:
        self._places += stack.places
        self._made.append(self._measure(stack))

    def finish(self) -> None:
        """Measure all that has come, and tell it."""
        for rest in self._stacks.take():
            self._look(rest)
        values = (value for rows in on_cpu(self._made) for value in rows)
        for place, value in zip(self._places, values, strict=True):
            self._told[place](value)
        self.drop()

    def drop(self) -> None:
        """Forget what has come and was not told."""
        self._stacks = Stacks()
        self._told: list[Callable[[Tensor], object]] = []
        self._places: list[int] = []
        self._made: list[Tensor] = []
        """Of the tensors of these places, in their order."""


def _beside(device: torch.device) -> bool:
    """Tell whether a GPU computes on another stream than the one on which what waits is measured."""
    return device.type == "cuda" and torch.cuda.current_stream(device) != torch.cuda.default_stream(device)
