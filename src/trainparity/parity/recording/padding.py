"""What fills the samples of a batch up to one length, as tokens behind the last of a sentence: no sample's own.

A batch that is cut otherwise is filled up otherwise, and so is what modules return there.
"""

import torch
from torch import Tensor

from trainparity.parity.recording.formats import is_inexact
from trainparity.parity.recording.kinds import is_dtensor


class Tokens:
    """The tokens [B, L] that a forward pass is given, and which of them are a sample's own.

    They are those that an `attention_mask` [B, L] keeps, else all up to the last that is not zero. Samples are known
    without the others, too.
    """

    def __init__(self, given: Tensor, mask: Tensor | None) -> None:
        self._shape = given.shape
        own = (given != 0).flip(1).cumsum(1).flip(1) > 0 if mask is None else mask != 0
        self._own = own | ~own.any(1, keepdim=True)  # zeros throughout are something else
        self._count = int(self._own.sum())

    @classmethod
    def of(cls, given: Tensor, mask: Tensor | None = None) -> "Tokens | None":
        """Return the tokens that samples are known by; None where these are something else."""
        integers = given.dtype in (torch.int64, torch.int32) and not is_dtensor(given)
        return cls(given, mask) if integers and given.ndim == 2 else None

    def width(self, tensor: Tensor) -> int:
        """Return how many numbers a tensor [B, L, D], [B L, D] or [B, L] of tokens has for each; else 0.

        A vector for each sample may be as long as the samples are.
        """
        by_sample = tensor.shape[:2] == self._shape and (tensor.ndim > 2 or not is_inexact(tensor))
        each = by_sample or (tensor.ndim > 1 and len(tensor) == self._shape.numel())
        return tensor.numel() // self._shape.numel() if each and self._shape.numel() else 0

    def width_of_others(self, tensor: Tensor) -> int:
        """Return the same of sequences of another length, as a decoder's: [B, T, D], [B T, D] or [B, T]; else 0."""
        if len(tensor) != self._shape[0]:
            return tensor.numel() // len(tensor)
        sequences = tensor.ndim > 2 or (tensor.ndim == 2 and not is_inexact(tensor))
        return tensor.numel() // max(1, tensor.shape[:2].numel()) if sequences else 0

    def own_alone(self, rows: Tensor) -> Tensor:
        """Return rows [B, L D] of samples with zeros in place of what no sample has."""
        if self._count == self._own.numel():
            return rows
        return rows.view(*self._shape, -1).masked_fill(~self._own.to(rows.device)[..., None], 0).flatten(1)

    def own_numbers(self, tensor: Tensor) -> int:
        """Return how many elements of a tensor are samples' own."""
        width = self.width(tensor)
        return width * self._count if width else tensor.numel()
