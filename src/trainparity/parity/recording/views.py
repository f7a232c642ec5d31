"""Views of the same samples, as crops of images, that a model puts into one batch."""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from trainparity.parity.recording.apart import unseen
from trainparity.parity.recording.formats import is_inexact
from trainparity.parity.recording.tensors import has_rows, tensors


class Views:
    """Of one pass: whether tensors of one shape that the model is given were put one after the other.

    So DINO handles its crops (Caron et al., arXiv 2104.14294). Rows may lie otherwise as well, as frames of clips whose
    samples come one after the other: so nothing is taken for views that no module was given in that order.
    """

    def __init__(self, given: Iterable[Tensor] = ()) -> None:
        """`given` is what the model is given."""
        groups: dict[torch.Size, list[Tensor]] = {}
        for tensor in given:
            if has_rows(tensor) and tensor.ndim > 1 and is_inexact(tensor):
                groups.setdefault(tensor.shape, []).append(tensor)
        self._sought = [group for group in groups.values() if len(group) > 1]
        self._all = sum(map(len, groups.values()))
        self._found = set[int]()

    def look(self, inputs: tuple[Any, ...]) -> None:
        """Look at what a module inside of the model is given."""
        if self._sought:
            self._look(inputs)

    @unseen
    def _look(self, inputs: tuple[Any, ...]) -> None:
        for tensor in filter(has_rows, tensors(inputs)):
            for group in [group for group in self._sought if _holds(tensor, group)]:
                self._sought.remove(group)
                self._found.add(len(group))
        if self._found and not self._sought:
            self._found.add(self._all)  # what is made of each group may be put together, too

    def let_go(self) -> None:
        """Look no more, and hold none of the tensors."""
        self._sought = []

    def by_sample(self, tensor: Tensor, samples: int) -> Tensor:
        """Return what has the rows of one view after those of another as [samples, views, ...]; else as it is."""
        views, rest = divmod(tensor.shape[0], samples)
        if rest or views not in self._found:
            return tensor
        return tensor.view(views, samples, *tensor.shape[1:]).transpose(0, 1)


def _holds(tensor: Tensor, group: list[Tensor]) -> bool:
    """Tell whether a tensor is those of a group, one after the other in some order."""
    one = group[0]
    if tensor.shape != (len(group) * one.shape[0], *one.shape[1:]) or tensor.device != one.device:
        return False
    return all(any(torch.equal(part, other) for other in group) for part in tensor.chunk(len(group)))
