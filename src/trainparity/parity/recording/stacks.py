"""Many tensors measured at a time: a model has hundreds of small ones, and each operation on one costs a launch."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch._C._functorch import is_functorch_wrapped_tensor

from trainparity.parity.recording.sketch import Sketcher, digests_of_rows, levels_of_rows, norms_of_rows
from trainparity.parity.recording.tensors import numbers_of


class Stack(NamedTuple):
    """Numbers of tensors of about one length, or of one long tensor."""

    places: list[int]
    """Of the tensors, among all."""
    rows: Tensor
    """A tensor's numbers in each, padded with zeros: [n, L]."""
    counts: list[int]
    """How many numbers each row has."""


Measure = Callable[[Stack], Tensor]
"""What is measured of each row of a stack: float64 or int64 [n, ...], where the stack is or float64 is."""


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
    stacks, count = Stacks(), 0
    places: list[int] = []
    made: list[Tensor] = []

    def add(stack: Stack) -> None:
        places.extend(stack.places)
        made.extend(measure(stack) for measure in measures)

    for count, tensor in enumerate(tensors, 1):
        if tensor is not None and (full := stacks.add(count - 1, tensor)):
            add(full)
    for rest in stacks.take():
        add(rest)
    if not made:
        add(_NOTHING)
    found = on_cpu(made)
    by_measure = [found[first :: len(measures)] for first in range(len(measures))]
    whole = [parts[0] if len(parts) == 1 else torch.cat(parts) for parts in by_measure]
    if places == [*range(count)]:
        return whole
    at = torch.tensor(places, dtype=torch.int64)
    return [values.new_zeros(count, *values.shape[1:]).index_copy_(0, at, values) for values in whole]


_NOTHING = Stack([], torch.zeros(0, 0), [])


def on_cpu(made: Sequence[Tensor]) -> list[Tensor]:
    """Return float64 and int64 tensors on the CPU, by one copy from each device: each waits for all that it computes.

    They are taken as int64 together, which changes no bit.
    """
    found = list(made)
    elsewhere = {each.device for each in found if each.device.type != "cpu"}
    for device in elsewhere:
        there = {place: each for place, each in enumerate(made) if each.device == device}
        copied = _apart(_together([*there.values()]).cpu(), [*there.values()])
        for place, each in zip(there, copied, strict=True):
            found[place] = each
    return found


def _together(tensors: Sequence[Tensor]) -> Tensor:
    return torch.cat([tensor.reshape(-1).view(torch.int64) for tensor in tensors])


def _apart(numbers: Tensor, like: Sequence[Tensor]) -> Iterator[Tensor]:
    for part, tensor in zip(torch.split(numbers, [tensor.numel() for tensor in like]), like, strict=True):
        yield part.view(tensor.dtype).view(tensor.shape)


class Stacks:
    """Tensors until there are enough of about one length to be looked at together."""

    def __init__(self) -> None:
        self._waiting: defaultdict[tuple[torch.device, torch.dtype, int], list[tuple[int, Tensor]]] = defaultdict(list)

    def add(self, place: int, tensor: Tensor, *, copied: bool = False) -> Stack | None:
        """Add a tensor; return a stack that is full now: of the tensor itself where it is long.

        A copy waits where that is asked for.
        """
        if not _is_stacked(tensor) and not _is_stacked(tensor := numbers_of(tensor)):
            return alone(place, tensor)
        count, memory = tensor.numel(), tensor.untyped_storage().nbytes()
        if copied or memory > _PART * tensor.nbytes:  # a part of what would not be let go, as of a message of ranks
            tensor = tensor.detach().clone()
        elif not tensor.is_leaf:
            tensor = tensor.detach()  # so that no graph waits with it
        alike = tensor.device, tensor.dtype, max(_SHORT, count.bit_length())
        waiting = self._waiting[alike]
        waiting.append((place, tensor))
        if len(waiting) << alike[-1] > _TOGETHER:
            return _stacked(self._waiting.pop(alike))
        return None

    def take(self) -> Iterator[Stack]:
        """Yield what is not full."""
        while self._waiting:
            yield _stacked(self._waiting.popitem()[1])


_LONG = 1 << 14
"""Numbers from which on a tensor is measured alone."""

_SHORT = 8
"""Binary digits of a length that all shorter tensors are padded to: what is computed there costs nothing that shows."""

_TOGETHER = 1 << 16
"""Numbers that are measured together, so that what is made of them stays in a CPU's cache."""

_PART = 4
"""Times its size that the memory is which a tensor is a part of, from which on its numbers wait as a copy."""

_STACKED = {torch.float64, torch.float32, torch.bfloat16, torch.float16, torch.int64}


_PLAIN = {Tensor, nn.Parameter}
"""Classes of tensors that hold nothing but their numbers."""


def _is_stacked(tensor: Tensor) -> bool:
    """Tell whether a tensor may wait: one that `torch.func` wraps is there as long as it calls a function."""
    plain = type(tensor) in _PLAIN and tensor.dtype in _STACKED and tensor.numel() <= _LONG
    there = plain and tensor.layout is torch.strided and not (tensor.is_meta or tensor.is_nested)
    return there and tensor.is_contiguous() and not is_functorch_wrapped_tensor(tensor)


def alone(place: int, tensor: Tensor) -> Stack:
    """Return a stack of one tensor."""
    numbers = numbers_of(tensor)
    return Stack([place], numbers[None], [numbers.numel()])


@torch.no_grad()
def _stacked(waiting: Sequence[tuple[int, Tensor]]) -> Stack:
    places = [place for place, _ in waiting]
    # The memory of one may have been let go while it waited, and reading it would end the process.
    tensors = [
        tensor if tensor.untyped_storage().nbytes() >= tensor.nbytes else tensor.new_zeros(0) for _, tensor in waiting
    ]
    counts = tuple(tensor.numel() for tensor in tensors)
    if min(counts) == max(counts):
        return Stack(places, _flat(tensors).view(len(tensors), counts[0]), [*counts])
    # A copy of each tensor into its row, as `pad_sequence` makes them, would be a launch for each.
    flat = _flat([*tensors, tensors[0].new_zeros(1)])
    rows = flat.index_select(0, _padded(counts, flat.device)).view(len(counts), -1)
    return Stack(places, rows, [*counts])


def _flat(tensors: list[Tensor]) -> Tensor:
    """Return the numbers of tensors one after the other; of a single one its own memory: [L]."""
    found: Tensor = torch._C._nn.flatten_dense_tensors(tensors)  # as `torch.cat` of each one's view, in one call
    return found


@lru_cache(maxsize=64)  # each traced step stacks tensors of the same lengths
def _padded(counts: tuple[int, ...], device: torch.device) -> Tensor:
    """Return where the numbers of rows of so many lie, of rows one after the other and a zero: int32 [n * L]."""
    places = torch.arange(max(counts), dtype=torch.int32)
    lengths = torch.tensor(counts, dtype=torch.int32)[:, None]
    firsts = lengths.cumsum(0, dtype=torch.int32) - lengths
    return torch.where(places < lengths, firsts + places, sum(counts)).int().flatten().to(device)
