"""The optimizers that a script makes, in their order, and the steps of those that are not recorded."""

import weakref
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # while this module is imported, torch is being imported too
    from torch.optim import Optimizer


class Optimizers:
    """All optimizers of one process; they are not kept alive by it."""

    def __init__(self) -> None:
        self._made: list[weakref.ref[Optimizer]] = []
        self._steps: dict[str, int] = {}
        """Steps of those that are not recorded, by name, since the first recorded one made a step."""

    def __len__(self) -> int:
        return len(self._made)

    def add(self, optimizer: "Optimizer") -> None:
        """Add one that was made."""
        self._made.append(weakref.ref(optimizer))

    def alive(self) -> "list[Optimizer]":
        """Return those that the script still holds."""
        return [optimizer for reference in self._made if (optimizer := reference()) is not None]

    def number(self, optimizer: "Optimizer") -> int:
        """Return the optimizer's place among all that the script has made, from 1."""
        return next((n for n, made in enumerate(self._made, 1) if made() is optimizer), 0)

    def name(self, optimizer: "Optimizer") -> str:
        """Return what a user may know it by."""
        from trainparity.attach.owners import parameters_of

        elements = sum(tensor.numel() for tensor in parameters_of(optimizer).values())
        return f"optimizer {self.number(optimizer)}, {type(optimizer).__name__} over {elements:,} numbers"

    def count_step(self, optimizer: "Optimizer") -> int:
        """Count a step of one that is not recorded; return the most that any such has made."""
        name = self.name(optimizer)
        self._steps[name] = self._steps.get(name, 0) + 1
        return max(self._steps.values())

    def steps_of(self, optimizer: "Optimizer") -> int | None:
        """Return how many steps were counted; None: never one, as of a recorded one."""
        return self._steps.get(self.name(optimizer))

    def count_anew(self) -> None:
        """Count from zero: the first recorded optimizer has made a step."""
        self._steps = dict.fromkeys(self._steps, 0)

    def forget_steps_of(self, optimizer: "Optimizer") -> None:
        """Count no steps of one that is recorded from now on."""
        self._steps.pop(self.name(optimizer), None)

    def names_of_counted(self) -> set[str]:
        """Return the names of those that have made steps without being recorded."""
        return set(self._steps)
