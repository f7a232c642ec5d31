"""Many tensors measured at a time: a model has hundreds of small ones, and each operation on one costs a launch."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from trainparity.parity.recording.sketch import (
    Sketcher,
    digests_of_rows,
    levels_of_rows,
    norms_of_rows,
    numbers_of,
)


class Stack(NamedTuple):
    """Numbers of tensors of about one length, or of one long tensor."""

    places: list[int]
    """Of the tensors, among all."""
    rows: Tensor
    """A tensor's numbers in each, padded with zeros: [n, L]."""
    counts: list[int]
    """How many numbers each row has."""


Measure = Callable[[Stack], Tensor]
"""What is measured of each row of a stack: [n, ...] on the CPU."""


def sketches(sketch: Sketcher) -> Measure:
    """Measure sketches: float64 [n, size]."""
    return lambda stack: sketch.of_rows(stack.rows)


def norms(stack: Stack) -> Tensor:
    """Measure L2 norms: float64 [n]."""
    return norms_of_rows(stack.rows)


def digests(stack: Stack) -> Tensor:
    """Measure digests: int64 [n]."""
    return digests_of_rows(stack.rows)


def levels(stack: Stack) -> Tensor:
    """Measure levels, see `sketch.levels`: float64 [n, LEVELS]."""
    return levels_of_rows(stack.rows, stack.counts)


def zeros(measure: Measure) -> Measure:
    """Stand in for a measure, without looking."""
    shape = measure(_NOTHING).shape[1:]
    return lambda stack: torch.zeros(len(stack.places), *shape, dtype=torch.float64)


def measured(tensors: Iterable[Tensor | None], *measures: Measure) -> list[Tensor]:
    """Return each measure of all tensors, [P, ...] on the CPU; zeros for a missing tensor.

    The tensors are taken one by one, and no more of them are held than are measured together.
    """
    places: list[int] = []
    found: list[list[Tensor]] = [[measure(_NOTHING)] for measure in measures]
    stacks = Stacks(tensors)
    for stack in stacks:
        places += stack.places
        for parts, measure in zip(found, measures, strict=True):
            parts.append(measure(stack))
    return [_in_order(torch.cat(parts), places, stacks.count) for parts in found]


def _in_order(values: Tensor, places: Sequence[int], count: int) -> Tensor:
    ordered = values.new_zeros(count, *values.shape[1:])
    ordered[torch.tensor(places, dtype=torch.int64)] = values
    return ordered


_NOTHING = Stack([], torch.zeros(0, 0), [])


class Stacks:
    """Stacks of tensors, in the order in which they are full."""

    def __init__(self, tensors: Iterable[Tensor | None]) -> None:
        self._tensors = tensors
        self.count = 0
        """How many tensors were taken, missing ones among them."""

    def __iter__(self) -> Iterator[Stack]:
        """Yield stacks that hold each tensor once."""
        waiting: defaultdict[tuple[torch.device, torch.dtype, int], list[tuple[int, Tensor]]] = defaultdict(list)
        for place, tensor in enumerate(self._tensors):
            self.count += 1
            if tensor is None:
                continue
            numbers = numbers_of(tensor)
            if type(numbers) is not Tensor or numbers.dtype not in _STACKED or len(numbers) > _LONG:
                yield Stack([place], numbers[None], [len(numbers)])
                continue
            alike = numbers.device, numbers.dtype, len(numbers).bit_length()
            waiting[alike].append((place, numbers))
            if len(waiting[alike]) << alike[-1] > _TOGETHER:
                yield _stacked(waiting.pop(alike))
        yield from map(_stacked, waiting.values())


_LONG = 1 << 14
"""Numbers from which on a tensor is measured alone."""

_TOGETHER = 1 << 16
"""Numbers that are measured together, so that what is made of them stays in a CPU's cache."""

_STACKED = {torch.float64, torch.float32, torch.bfloat16, torch.float16, torch.int64}


def _stacked(waiting: Sequence[tuple[int, Tensor]]) -> Stack:
    places, numbers = zip(*waiting, strict=True)
    return Stack([*places], pad_sequence([*numbers], batch_first=True), [*map(len, numbers)])
