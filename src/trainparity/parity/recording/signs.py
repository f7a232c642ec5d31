"""Random signs that belong to samples: sums over a batch with them do not depend on how it was cut or ordered."""

from functools import reduce
from operator import add

import torch
from torch import Tensor

from trainparity.parity.recording.formats import as_real, where_float64_is
from trainparity.parity.recording.padding import Tokens
from trainparity.parity.recording.sketch import mix

STAND_IN = torch.iinfo(torch.int64).min
"""The identity of a row that is no sample: its loss weighs nothing."""

_CHUNK = 1 << 24
"""Numbers that are held in float64 at a time."""

_SIGNS = 64
"""Random signs of each sample: as many as a hash has bits."""

_SIXTEEN_BITS = (1 << 16) - 1
"""Of a hash, which tell by what number a sample counts in all of its sums."""

_FEW = 8
"""Numbers of a sample below which all signs are used: one sum of one number is a multiple of any other."""

_MANY = 1024
"""Numbers of a sample above which one sign is used: the sums cost what the numbers do."""

_LENGTH = 64
"""Tokens that a sequence counts as there: it is as long as a batch is padded."""

_SOME = 8
"""Signs used between these: two samples of one sign that change places, as shuffled labels do, change no sum."""


class Signs:
    """Those of the samples of a pass."""

    def __init__(self, samples: Tensor, tokens: Tokens | None) -> None:
        """Take samples by their identities, int64 [B], and the tokens that they are made of, if they are."""
        self._hashes = mix(samples + 1) * (samples != STAND_IN)
        """Int64 [B]: each bit is a random sign. Zero for a row that is no sample."""
        self._count, self._tokens = samples.shape[0], tokens
        self._made: dict[tuple[int, torch.device], Tensor] = {}
        """Signs that were asked for, by their number and device."""

    def __len__(self) -> int:
        """Return the number of samples."""
        return self._count

    def numbers(self, tensor: Tensor) -> int:
        """Return how many numbers a tensor [B * n, ...] has of the samples' own."""
        return self._tokens.own_numbers(tensor) if self._tokens else tensor.numel()

    def sum(self, tensor: Tensor, *, own_alone: bool) -> Tensor | None:
        """Return the signed sums over the rows of a tensor [B * n, ...]: float64 [numbers, signs].

        None where these are no samples. Of sequences their own tokens alone are summed where that is asked for, and how
        many signs there are does not depend on how long they are.
        """
        if tensor.shape[0] % self._count:  # not `len`, which asks whether tensors are traced
            return None
        rows = where_float64_is(as_real(tensor.detach())).reshape(self._count, -1)
        width = self._tokens.width(tensor) if self._tokens else 0
        if self._tokens and width and own_alone:
            rows = self._tokens.own_alone(rows)
        each = width or (self._tokens.width_of_others(tensor) if self._tokens else 0)
        signs = self._of(signs_used(_LENGTH * each or rows.shape[1]), rows.device)
        at_once = max(1, _CHUNK // max(1, rows.shape[1]))
        if self._count <= at_once:
            return torch.mm(rows.double().t(), signs)  # as `@`, which asks more at each call
        parts = zip(torch.split(rows, at_once), torch.split(signs, at_once), strict=True)
        # Samples that are padded to another length keep the places of their numbers.
        return reduce(add, [part.double().T @ of_part for part, of_part in parts])

    def _of(self, count: int, device: torch.device) -> Tensor:
        """Return the first signs of each sample, times 1 to 2: float64 [B, count]; zeros for a row that is none."""
        if (count, device) not in self._made:
            hashes = self._hashes.to(device)
            bits = (hashes[:, None] >> torch.arange(count, device=device)) & 1
            lengths = 1 + (mix(hashes) & _SIXTEEN_BITS).double() / (_SIXTEEN_BITS + 1)  # else equal rows may cancel
            self._made[count, device] = (1 - 2 * bits) * (lengths * (hashes != 0))[:, None]
        return self._made[count, device]


def signs_used(numbers: int) -> int:
    """Return how many sums a sample of so many numbers is seen in."""
    if numbers < _FEW:
        return _SIGNS
    return _SOME if numbers <= _MANY else 1


MEAN_LENGTH = (7 / 3) ** 0.5
"""Root mean square of what a sample's signs are multiplied by, which lies between 1 and 2."""
