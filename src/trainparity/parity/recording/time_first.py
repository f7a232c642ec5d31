"""Whether a model is given time first, [T, B, ...], as PyTorch's recurrent and attention layers are by default."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from trainparity.parity.recording.formats import is_inexact

_NONE: Mapping[str, Any] = MappingProxyType({})


class TimeFirst:
    """Told by the first layer whose `batch_first` is false, and by what the model returns.

    The layer is given as many sequences as there are samples, and so is what the loss is made of: a layer that is given
    samples first by mistake is told from one that is meant so by that, or by a mask over steps.
    """

    def __init__(self, model: nn.Module) -> None:
        self._layers = {id(module) for module in model.modules() if getattr(module, "batch_first", None) is False}
        self._said: bool | None = None
        self._masked = False
        """Whether a layer is given a mask over as many steps as the model is given first."""
        self.known: bool | None = None if self._layers else False
        """None: nothing has told it yet."""

    def look(
        self, module: nn.Module, inputs: tuple[Any, ...], given: Tensor | None, keywords: Mapping[str, Any] = _NONE
    ) -> None:
        """Look at what a layer is given, where the model is given a tensor.

        As many sequences as steps tell nothing: then it is whether the model has turned them.
        """
        if self.known is not None or id(module) not in self._layers or given is None or given.ndim < 2 or not inputs:
            return
        # Of layers inside of layers any may be given it, as `nn.Transformer` is by position.
        self._masked |= any(_is_mask(value, len(given)) for value in (*inputs[1:], *keywords.values()))
        if self._said is not None:
            return
        sequences = _sequences(inputs[0])
        if given.shape[0] != given.shape[1]:
            self._said = sequences == given.shape[1] if sequences in given.shape[:2] else None
        elif sequences == len(given):
            # Of queries, keys and values what a normalisation returns lies in memory as it is.
            orders = [_in_same_order(taken, given) for taken in inputs[:3] if _sequences(taken) == sequences]
            self._said = None if None in orders else all(orders)

    def decide(self, returned: Sequence[Tensor], given: Tensor | None) -> bool:
        """Tell whether the model is given time first, by what a pass has returned; alone, where layers are compiled."""
        if given is not None and given.ndim > 1:
            steps, batch = given.shape[:2]
            said = steps != batch if self._said is None else self._said
            masked = bool(self._masked and steps != batch)
            self.known = said and any(_is_of(tensor, steps, batch, masked=masked) for tensor in returned)
        return bool(self.known)


def _is_of(returned: Tensor, steps: int, batch: int, *, masked: bool) -> bool:
    """Tell whether a tensor has a row for each sample of [steps, batch, ...], or is [T, B, C] with steps of its own.

    Where a mask says which are the steps, with the model's steps, too.
    """
    if not returned.requires_grad or not returned.ndim:
        return False
    of_other_steps = returned.ndim > 2 and returned.shape[1] == batch and (masked or len(returned) != steps)
    return len(returned) == batch or of_other_steps


def _in_same_order(taken: PackedSequence | Tensor, given: Tensor) -> bool | None:
    """Tell whether a layer is given what a model is given as it is; where that has the same sizes turned, too.

    By the order in memory, which functions of each number keep, or by the first step of all sequences.
    """
    if isinstance(taken, Tensor):
        return (taken.stride(0) < taken.stride(1)) == (given.stride(0) < given.stride(1))
    order = taken.sorted_indices
    first = given[0] if order is None else given[0, order]
    return torch.equal(taken.data[: len(given)], first) if taken.data.shape[1:] == given.shape[2:] else None


def _is_mask(value: object, steps: int) -> bool:
    """Tell whether something is a mask over so many steps."""
    return isinstance(value, Tensor) and value.ndim == 2 and {*value.shape} == {steps}


def _sequences(taken: object) -> int | None:
    """Return how many sequences a layer is given; None where that is nothing it takes."""
    if isinstance(taken, PackedSequence):
        return int(taken.batch_sizes[0])
    return taken.shape[1] if isinstance(taken, Tensor) and taken.ndim > 2 else None


def is_state(tensor: Tensor, given: Tensor | None) -> bool:
    """Tell whether a tensor beside what a model is given time first is a state [layers, B, H]: it has other steps."""
    return given is not None and tensor.ndim > 2 and is_inexact(tensor) and len(tensor) != len(given)


def batch_first(tensor: Tensor, batch: int) -> Tensor:
    """Return a tensor [T, B, ...], or [T B, ...], of so many sequences as [B, T, ...]; one [B, ...] as it is.

    What has neither as many rows nor a multiple of them, as the state [layers, B, H], has them in its second dimension;
    tokens [T, B] do so in any case, scores [B, B] do not.
    """
    if (
        tensor.ndim > 1
        and tensor.shape[1] == batch
        and (tensor.ndim > 2 or len(tensor) != batch or not is_inexact(tensor))
    ):
        return tensor.transpose(0, 1)
    if batch and len(tensor) != batch and len(tensor) % batch == 0:
        return tensor.reshape(-1, batch, *tensor.shape[1:]).transpose(0, 1)
    return tensor
