"""Small linear images of large tensors: enough to measure distances and to prove equality."""

from collections.abc import Sequence
from functools import cache, reduce
from operator import add

import torch
from torch import Tensor

from trainparity.parity.recording.formats import as_real, where_float64_is
from trainparity.parity.recording.tensors import numbers_of

_CHUNK = 1 << 20
_CACHED = 1 << 16
"""Numbers that a CPU looks at together, so that what is made of them stays in its cache; on any number of threads."""
_EXACT = (torch.float32, torch.float64)
"""Formats in which a number may change its sign beside others: coarser ones, and integers, become float64 first."""
_MIX = (-7046029254386353131, -4658895280553007687)
"""SplitMix64's odd multipliers (Steele et al., OOPSLA 2014) as signed 64-bit integers."""


class Sketcher:
    """A fixed random projection of any tensor to `size` numbers (Charikar et al.'s count sketch, 2002).

    Element i is added with a random sign to number i mod size. The map S is linear and E|Sx|^2 = |x|^2 with a
    relative deviation of about sqrt(2 / size), so |Sx - Sy| estimates |x - y| without keeping x or y. It is
    exact for tensors of at most `size` elements. Sums run in float64: what is measured is 1e-7 of what is summed.
    """

    def __init__(self, size: int, seed: int = 0) -> None:
        self.size = size
        self._length = size * max(1, _CHUNK // size)
        signs, self._chunk_signs = _signs(self._length, seed)
        self._signs = {torch.device("cpu"): signs}

    def __call__(self, tensor: Tensor) -> Tensor:
        """Project a tensor of any shape: float64 [size] on the CPU."""
        return self.of_rows(numbers_of(tensor)).cpu()

    def of_rows(self, rows: Tensor) -> Tensor:
        """Project each row of numbers [..., L]: float64 [..., size], where these are, or where float64 is."""
        rows = where_float64_is(rows)
        if rows.shape[-1] <= self._length:
            return self._sums(rows) * self._chunk_signs[0]
        chunks = zip(_split(rows, self._length), self._chunk_signs, strict=False)
        return reduce(add, [self._sums(chunk) * sign for chunk, sign in chunks])

    def _sums(self, part: Tensor) -> Tensor:
        """Project up to a chunk's numbers, without the chunk's own sign: float64 [..., size]."""
        at_once = _at_once(part, self.size)
        if part.shape[-1] <= at_once:
            return self._sum(part, 0)
        parts = enumerate(_split(part, at_once))
        return reduce(add, [self._sum(numbers, at_once * i) for i, numbers in parts])

    def _sum(self, numbers: Tensor, start: int) -> Tensor:
        """Project a chunk's numbers from a place on: float64 [..., size]."""
        if numbers.device not in self._signs:
            self._signs[numbers.device] = self._signs[torch.device("cpu")].to(numbers.device)
        exact = numbers if numbers.dtype in _EXACT else numbers.double()
        signed = (exact * self._signs[numbers.device].narrow(0, start, numbers.shape[-1])).double()
        if short := -signed.shape[-1] % self.size:
            signed = torch.nn.functional.pad(signed, (0, short))
        sums: Tensor = signed.view(*signed.shape[:-1], signed.shape[-1] // self.size, self.size).sum(-2)
        return sums


def _at_once(rows: Tensor, multiple_of: int = 1) -> int:
    """Return how many of a tensor's numbers are best looked at together: on a GPU each look costs a launch."""
    if rows.device.type != "cpu":
        return max(1, rows.shape[-1])
    return max(1, _CACHED // multiple_of) * multiple_of


def _split(rows: Tensor, size: int) -> Sequence[Tensor]:
    """Split rows [..., L] as `torch.split` does, which takes longer than what is computed of a few numbers."""
    return (rows,) if rows.shape[-1] <= size else torch.split(rows, size, dim=-1)


def norm(tensor: Tensor) -> float:
    """Return the L2 norm, summed in float64."""
    return float(norms_of_rows(numbers_of(tensor)))


def norms_of_rows(rows: Tensor) -> Tensor:
    """Return the L2 norm of each row of numbers [..., L], summed in float64: float64 [...], where float64 is."""
    rows = where_float64_is(rows)
    if rows.device.type != "cpu":
        rows = rows if rows.is_floating_point() else rows.double()
        lengths: Tensor = torch.linalg.vector_norm(rows, dim=-1, dtype=torch.float64)
        return lengths
    # On a CPU vector_norm turns numbers into float64 one by one, at six times the cost.
    if rows.shape[-1] <= _CACHED // 2:
        return rows.to(torch.float64, copy=True).square_().sum(-1).sqrt_()
    squares = [part.to(torch.float64, copy=True).square_().sum(-1) for part in _split(rows, _CACHED // 2)]
    return torch.stack(squares).sum(0).sqrt()


LEVELS = 16
"""Levels of `levels`: a number on the last one is at most a billionth of the root mean square."""


def levels(tensor: Tensor) -> Tensor:
    """Return which part of a tensor's elements is how small: float64 [LEVELS], on the CPU.

    An element x on level k has |x| from 4^-(k+1) to 4^-k of the root mean square; the first level also holds the larger
    ones, the last one the smaller ones. Zeros, and what is below 1e-38 of it, are on none.
    """
    numbers = numbers_of(tensor)
    return levels_of_rows(numbers[None], [len(numbers)])[0].cpu()


def levels_of_rows(rows: Tensor, counts: Sequence[int]) -> Tensor:
    """Return the same for each row of numbers [n, L], of which it has so many before its padding: [n, LEVELS].

    Where float64 is.
    """
    rows = where_float64_is(rows)
    count = torch.tensor(counts, dtype=torch.float64)[:, None].to(rows.device, non_blocking=True)
    length = torch.linalg.vector_norm(rows.float(), dim=-1, keepdim=True)
    scale = (count.sqrt() / length).clamp(max=torch.finfo(torch.float32).max).float()
    first = torch.arange(len(rows), dtype=torch.int32, device=rows.device)[:, None] * _FIELDS
    fields = torch.zeros(len(rows) * _FIELDS, dtype=torch.int64, device=rows.device)
    for numbers in _split(rows, _at_once(rows)):
        bits = (numbers.float() * scale).view(torch.int32)
        places = bits.bitwise_right_shift_(23).bitwise_and_(_FIELDS - 1).add_(first)
        fields += torch.bincount(places.flatten(), minlength=len(fields))
    found = torch.zeros(len(rows), LEVELS, dtype=torch.int64, device=rows.device)
    finite = fields.view(-1, _FIELDS)[:, 1:-1]
    return found.index_add(1, _level_of_field(rows.device), finite).double() / count.clamp(min=1)


_FIELDS = 256
"""Values of a float32's exponent field (IEEE 754)."""


@cache
def _level_of_field(device: torch.device) -> Tensor:
    """Return the level of each exponent field between those of zero and of what is not finite: int64 [254].

    A number of field f lies from 2^(f-127) to 2^(f-126).
    """
    return (126 - torch.arange(1, _FIELDS - 1, device=device)).clamp(0, 2 * LEVELS - 1) // 2


def digest(tensor: Tensor) -> int:
    """Hash a tensor's bits to 64: any one changed element changes it, and any other change but for bad luck."""
    return int(digests_of_rows(numbers_of(tensor)))


def digests_of_rows(rows: Tensor) -> Tensor:
    """Hash the bits of each row of numbers [..., L]: int64 [...], where they are. Of up to a chunk zeros may pad."""
    bits = rows.contiguous()
    bits = bits.view({1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int32}[bits.element_size()])
    total = torch.zeros(bits.shape[:-1], dtype=torch.int64, device=bits.device)
    for index, part in enumerate(_split(bits, _CHUNK)):
        # Powers of an odd number, and odd weights: no factor is lost modulo 2^64.
        total = total * _MIX[0] + _weighted(part) + index
    return total


def _weighted(bits: Tensor) -> Tensor:
    """Sum up to a chunk's integers of each row, each times the odd weight of its place, modulo 2^64."""
    weights = _weights(bits.shape[-1], bits.device)
    together = _at_once(bits)
    parts = zip(_split(bits, together), _split(weights, together), strict=True)
    return reduce(add, [(part.to(torch.int64) * of_part).sum(-1) for part, of_part in parts])


def row_digests(tensor: Tensor) -> Tensor:
    """Hash the bits of each row of a tensor [B, ...]: int64 [B]. Trailing zeros don't count: they may be padding."""
    rows = as_real(tensor.detach()).contiguous()[:, None].flatten(1)
    if rows.stride(1) != 1:  # one number a row, of a tensor that was turned: that counts as contiguous
        rows = rows.clone(memory_format=torch.contiguous_format)
    if rows.dtype == torch.bool:
        rows = rows.to(torch.uint8)
    bits = rows.view({1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int32}[rows.element_size()])
    if tensor.dtype == torch.int64:  # only the values: the same tokens as int32 are the same sample
        bits = rows
    length = bits.shape[1]
    total = torch.zeros(len(rows), dtype=torch.int64, device=rows.device)
    for start in range(0, length, _CHUNK):
        part = bits[:, start : start + _CHUNK].to(torch.int64)
        total = total * _MIX[0] + (part * _weights(part.shape[1], part.device)).sum(1)
    return mix(total)


def mix(values: Tensor) -> Tensor:
    """Spread integers over 64 bits, so that sums tell one multiset of them from another."""
    values = (values ^ (values >> 30)) * _MIX[1]
    return (values ^ (values >> 27)) * _MIX[0]


def _weights(count: int, device: torch.device) -> Tensor:
    """Return the weights of so many places: int64 [count]."""
    return _weights_of_chunk(device)[:count]


@cache
def _weights_of_chunk(device: torch.device) -> Tensor:
    numbers = torch.arange(1, _CHUNK + 1, device=device) * _MIX[0]
    return (numbers ^ (numbers >> 31)) * _MIX[1] | 1


@cache
def _signs(length: int, seed: int) -> tuple[Tensor, list[float]]:
    """Draw the signs of a chunk's numbers: float32 [length]; and of as many chunks as any tensor has."""
    generator = torch.Generator().manual_seed(seed)
    return _random_signs(length, generator), _random_signs(1 << 16, generator).tolist()


def _random_signs(count: int, generator: torch.Generator) -> Tensor:
    return (torch.randint(0, 2, (count,), generator=generator, dtype=torch.float64) * 2 - 1).float()
