"""Gradients that ranks average only as they update: their mean over ranks is what is applied."""

from collections.abc import Sequence

import torch
from torch import Tensor

from trainparity.parity.recording import ranks
from trainparity.parity.recording.kinds import is_dtensor
from trainparity.parity.recording.sketch import digest


def averaged(parameters: Sequence[Tensor], gradients: Sequence[Tensor | None]) -> list[Tensor | None]:
    """Return the mean over ranks of each parameter's gradient, a missing one as zero. Every rank must call it.

    Of a parameter that ranks do not hold alike, as one of their own, it is the rank's gradient.
    """
    hashes = ranks.gather(torch.tensor([0 if is_dtensor(parameter) else digest(parameter) for parameter in parameters]))
    alike = ((hashes == hashes[:1]) & (hashes != 0)).all(0).tolist()
    there = ranks.gather(torch.tensor([gradient is not None for gradient in gradients])).any(0).tolist()
    return [
        ranks.mean(torch.zeros_like(parameter) if own is None else own.detach()) if shared and some else own
        for parameter, own, shared, some in zip(parameters, gradients, alike, there, strict=True)
    ]
