"""What was recorded of a run's steps so far, while it goes on."""

from collections.abc import Mapping

import torch
from torch import Tensor


class StepArrays:
    """The arrays of the steps so far, while a run goes on."""

    def __init__(self) -> None:
        self._steps: dict[str, list[Tensor]] = {}

    def append(self, values: Mapping[str, Tensor]) -> None:
        """Add a step; what it has not is zero, as an option that another optimizer has."""
        made = len(next(iter(self._steps.values()), []))
        for name in values.keys() - self._steps.keys():
            self._steps[name] = [torch.zeros_like(values[name])] * made
        for name, column in self._steps.items():
            column.append(values[name] if name in values else torch.zeros_like(column[-1]))

    def stacked(self) -> dict[str, Tensor]:
        """Return all steps, ragged ones padded with zeros to the largest shape."""
        return {name: _stack(values) for name, values in self._steps.items()}

    def restore(self, arrays: Mapping[str, Tensor]) -> None:
        """Go on from what `stacked` returned."""
        self._steps = {name: list(array.unbind()) for name, array in arrays.items()}


def _stack(values: list[Tensor]) -> Tensor:
    shapes = {tuple(value.shape) for value in values}
    if len(shapes) == 1:
        return torch.stack(values)
    largest = [max(sizes) for sizes in zip(*shapes, strict=True)]
    padded = values[0].new_zeros(len(values), *largest)
    for row, value in zip(padded, values, strict=True):
        row[tuple(slice(size) for size in value.shape)] = value
    return padded
