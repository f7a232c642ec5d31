"""Gradients that ranks average only as they update: their mean over ranks is what is applied."""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from trainparity.parity.recording import ranks
from trainparity.parity.recording.kinds import is_dtensor
from trainparity.parity.recording.sketch import digest


def means(parameters: Sequence[Tensor], gradients: Sequence[Tensor | None]) -> Iterator[Tensor | None]:
    """Yield the mean over ranks of each parameter's gradient, a missing one as zero; a shard's is its own.

    Every rank must take all of them. They are made one by one: together they are as large as the model.
    """
    there = ranks.gather(torch.tensor([gradient is not None for gradient in gradients])).any(0).tolist()
    for parameter, own, some in zip(parameters, gradients, there, strict=True):
        if some and not is_dtensor(parameter):
            yield ranks.mean(torch.zeros_like(parameter) if own is None else own.detach())
        else:
            yield own


def held_alike(parameters: Sequence[Tensor]) -> Tensor:
    """Tell which parameters all ranks hold with equal bits: bool [P]. Every rank must call it."""
    hashes = ranks.gather(torch.tensor([0 if is_dtensor(parameter) else digest(parameter) for parameter in parameters]))
    return ((hashes == hashes[:1]) & (hashes != 0)).all(0)
