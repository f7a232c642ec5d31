"""Views of the same samples, as crops of images, that a model puts into one batch."""

from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor

from trainparity.parity.recording.apart import unseen
from trainparity.parity.recording.formats import is_inexact
from trainparity.parity.recording.tensors import in_memory, tensors


class Views:
    """Of one pass: whether tensors of one shape that the model is given, or made of each, lie one after the other.

    So DINO handles its crops (Caron et al., arXiv 2104.14294), and BYOL (Grill et al., arXiv 2006.07733) two views that
    modules make of the images given. Rows may lie otherwise as well, as frames of clips whose samples come one after
    the other: so nothing is taken for views that was not seen in that order.
    """

    def __init__(self, given: Iterable[Tensor] = ()) -> None:
        """`given` is what the model is given."""
        groups: dict[torch.Size, list[Tensor]] = {}
        for tensor in given:
            if in_memory(tensor) and tensor.ndim > 1 and is_inexact(tensor):
                groups.setdefault(tensor.shape, []).append(tensor)
        self._sought = {max(len(group), _OF_ONE) for group in groups.values()}
        self._all = sum(map(len, groups.values()))
        self._single = groups if self._sought else {}
        """What may be a view, by its shape: what the model is given, and the last that its modules returned."""
        self._found = set[int]()
        self._one = next(iter(groups))[1:] if self._all == 1 else None
        """Shape of a row of the only tensor that is given: its views alone are looked for, not what is made of them."""

    def look(self, values: Any) -> None:
        """Look at what a module inside of the model is given, or what the model returns."""
        if self._sought:
            self._look(values)

    def made(self, output: Any) -> None:
        """Look at what a module inside of the model returns."""
        if self._sought:
            self._keep(output)

    @unseen
    def _look(self, values: Any) -> None:
        for tensor in self._fitting(values):
            found = {count for count in self._sought if self._holds(tensor, count)}
            self._sought -= found
            self._found |= found
        if self._found and not self._sought and self._all > 1:
            self._found.add(self._all)  # what is made of each group may be put together, too

    @unseen
    def _keep(self, output: Any) -> None:
        for tensor in self._fitting(output):
            kept = [*self._single.get(tensor.shape, []), tensor.detach()]
            self._single[tensor.shape] = kept[-_KEPT * max(self._all, _OF_ONE) :]

    def _fitting(self, values: Any) -> Iterator[Tensor]:
        """Yield the tensors that may be views, or hold them: such as have rows here, which a shard's do not all."""
        for tensor in tensors(values):
            if in_memory(tensor) and tensor.ndim > 0 and self._one in (None, tensor.shape[1:]):  # a nested one has none
                yield tensor

    def let_go(self) -> None:
        """Look no more, and hold none of the tensors."""
        self._sought, self._single = set(), {}

    def by_sample(self, tensor: Tensor, samples: int) -> Tensor:
        """Return what has the rows of one view after those of another as [samples, views, ...]; else as it is."""
        views, rest = divmod(tensor.shape[0], samples)
        if rest or views not in self._found:
            return tensor
        return tensor.view(views, samples, *tensor.shape[1:]).transpose(0, 1)

    def _holds(self, tensor: Tensor, count: int) -> bool:
        """Tell whether a tensor is so many of one shape, one after the other in some order."""
        each, rest = divmod(tensor.shape[0], count)
        single = self._single.get(torch.Size([each, *tensor.shape[1:]]), [])
        alike = [one.to(tensor.dtype) for one in single if one.device == tensor.device]  # a batch has the widest format
        return not rest and all(any(torch.equal(part, one) for one in alike) for part in tensor.chunk(count))


_OF_ONE = 2
"""Views that modules make of one tensor, or it is one of them."""

_KEPT = 2
"""Tensors of one shape that are kept, in numbers of views: a view may pass several modules that return as many."""
