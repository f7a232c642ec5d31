"""What forward passes have shown so far, by name: the rows of a trace's activations."""

from collections import Counter
from collections.abc import Sequence, Set

import torch
from torch import Tensor

from trainparity.parity.recording.kinds import is_dtensor
from trainparity.parity.recording.passes import Pass

OUTPUTS = 4
"""Outputs whose gradients are kept pass by pass: a loss of several terms may weigh the passes of one otherwise."""


class Seen:
    """The names of what passes showed, and which of it the loop got."""

    def __init__(self, size: int) -> None:
        """Start with nothing; `size` is that of a sketch."""
        self._size = size
        self.names: list[str] = []
        """Modules whose output was seen, in the order of the first forward pass."""
        self._numbering: dict[str, bool] = {}
        self.calls: dict[str, int] = {}
        """How often parts that go on from another's output are called in a micro-batch, at most, by what they show."""
        self._calls: Counter[str] = Counter()
        self._outputs: dict[str, bool] = {}
        """What the loop got from the model or from parts of it, and whether it handed that to another part."""
        self._counted: set[str] = set()
        """What it got in passes that belong to the training."""

    @property
    def outputs(self) -> list[str]:
        """What the loop got from the model, or from parts of it, and gave to no other part: the loss is made of it."""
        return [name for name, handed_on in self._outputs.items() if not handed_on and name in self._counted]

    def note(self, name: str) -> None:
        """Note that something was seen."""
        if name not in self.names:
            self.names.append(name)

    def given(self, name: str, tensor: Tensor) -> None:
        """Note what the model is given."""
        self.note(name)
        self._numbering[name] = self._numbering.get(name, True) and _is_numbering(tensor)

    def called(self, found: Pass) -> None:
        """Note a pass that has ended."""
        if found.source is not None:
            self._calls.update(found.activations.keys())
            self.calls |= {name: max(self._calls[name], self.calls.get(name, 0)) for name in found.activations}

    def next_micro_batch(self) -> None:
        """Count the calls anew."""
        self._calls.clear()

    @property
    def numbering(self) -> list[str]:
        """Inputs that number what a pass holds, as the graphs of a batch by their nodes: they depend on the cut."""
        return [name for name, always in self._numbering.items() if always]

    def output(self, found: Pass, name: str) -> None:
        """Note that the loop got a tensor; one whose rows are no samples is among them without being seen."""
        if name not in found.outputs:
            found.outputs.append(name)
            self._outputs.setdefault(name, False)

    def hand_on(self, source: Pass) -> None:
        """Note that the loop gave what it got from a pass to another part."""
        self._outputs |= {name: True for name in source.outputs if name in self._outputs}

    def hand_on_one(self, source: Pass, place: int, to: str) -> None:
        """Note that it gave one tensor of a pass to another part beside its input, as an encoder's to a decoder.

        Not `to` the same part: what a recurrent cell keeps may be what the loss is made of, too.
        """
        if place < len(source.returned) and source.part != to:
            self._outputs[source.returned[place]] = True

    def numbers(self, passes: Sequence[Pass]) -> Tensor:
        """Return of how many numbers the sums are: int64 [A]."""
        counts = [sum(one.numbers[name] for one in passes) for name in self.names]
        return torch.tensor(counts, dtype=torch.int64)

    def given_back(self, passes: Sequence[Pass], aside: Set[int]) -> Tensor:
        """Return for each pass the sum of the gradients of what the loss is made of: float64 [n, size].

        Those of backward passes `aside` don't count. Zeros where passes share a loss, as those of a discriminator over
        real and made samples do.
        """
        found = torch.zeros(len(passes), self._size, dtype=torch.float64)
        if _share_a_loss(passes, aside):
            return found
        for row, one in zip(found, passes, strict=True):
            gradients = one.gradients(aside)
            returned = gradients.keys() & set(self.outputs)
            for name in returned or list(gradients)[:1]:  # of a model that makes its loss: what comes back first
                row += gradients[name]
        return found

    @property
    def first_outputs(self) -> list[str]:
        """The first that the loop ever got, of which `given_by_output` has rows."""
        return list(self._outputs)[:OUTPUTS]

    def given_by_output(self, passes: Sequence[Pass], aside: Set[int]) -> Tensor:
        """Return the same for each of the first outputs by itself: float64 [n, OUTPUTS, size]."""
        found = torch.zeros(len(passes), OUTPUTS, self._size, dtype=torch.float64)
        if _share_a_loss(passes, aside):
            return found
        names = self.first_outputs
        for rows, one in zip(found, passes, strict=True):
            gradients = one.gradients(aside)
            for place, name in enumerate(names):
                rows[place] += gradients.get(name, 0.0)
        return found

    def sums(self, passes: Sequence[Pass], aside: Set[int]) -> Tensor:
        """Return the sums over passes of what modules returned and of its gradients: float64 [2, A, size].

        Those of backward passes `aside` don't count.
        """
        found = torch.zeros(2, len(self.names), self._size, dtype=torch.float64)
        places = {name: place for place, name in enumerate(self.names)}
        for one in passes:
            self._counted.update(one.outputs)
            for sums, values in zip(found, (one.activations, one.gradients(aside)), strict=True):
                if values:
                    at = torch.tensor([places[name] for name in values])
                    sums.index_add_(0, at, torch.stack([value.expand(self._size) for value in values.values()]))
        return found


def _share_a_loss(passes: Sequence[Pass], aside: Set[int]) -> bool:
    """Tell whether a backward pass came through several passes, as that of a discriminator over real and made ones."""
    numbers = [number for one in passes for number in one.backwards - aside]
    return len(numbers) > len(set(numbers))


def _is_numbering(tensor: Tensor) -> bool:
    """Tell whether a tensor is 0, ..., 0, 1, ..., 1, 2, ...: each number goes on from, or is, the one before.

    Or leaves some out, as offsets of bags or sequences that lie one after the other.
    """
    if tensor.ndim != 1 or not len(tensor) or tensor.dtype not in (torch.int64, torch.int32) or is_dtensor(tensor):
        return False
    return bool((tensor[0] == 0) & (tensor.diff() >= 0).all())
