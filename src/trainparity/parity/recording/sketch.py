"""Small linear images of large tensors: enough to measure distances and to prove equality."""

import math
from functools import cache, reduce
from operator import add

import torch
from torch import Tensor

from trainparity.parity.recording.formats import as_real, where_float64_is

_CHUNK = 1 << 20
_CACHED = 1 << 16
"""Numbers that a CPU looks at together, so that what is made of them stays in its cache; on any number of threads."""
_EXACT = (torch.float32, torch.float64)
"""Formats in which a number may change its sign beside others: coarser ones, and integers, become float64 first."""
_MIX = (-7046029254386353131, -4658895280553007687)
"""SplitMix64's odd multipliers (Steele et al., OOPSLA 2014) as signed 64-bit integers."""


def _dense(tensor: Tensor) -> Tensor:
    """Return all numbers of a tensor, as of the sparse gradient that an embedding may have; of a meta tensor none.

    Complex ones are two numbers each; those of a packed format (fp4), which is not computed in, are taken by bytes.
    """
    if tensor.is_meta:
        return torch.zeros(0)
    dense = as_real(tensor.detach().to_dense() if tensor.is_sparse else tensor.detach())
    return dense.view(torch.uint8) if dense.dtype == torch.float4_e2m1fn_x2 else dense


class Sketcher:
    """A fixed random projection of any tensor to `size` numbers (Charikar et al.'s count sketch, 2002).

    Element i is added with a random sign to number i mod size. The map S is linear and E|Sx|^2 = |x|^2 with a
    relative deviation of about sqrt(2 / size), so |Sx - Sy| estimates |x - y| without keeping x or y. It is
    exact for tensors of at most `size` elements. Sums run in float64: what is measured is 1e-7 of what is summed.
    """

    def __init__(self, size: int, seed: int = 0) -> None:
        self.size = size
        self._length = size * max(1, _CHUNK // size)
        self._signs, self._chunk_signs = _signs(self._length, seed)

    def __call__(self, tensor: Tensor) -> Tensor:
        """Project a tensor of any shape: float64 [size] on the CPU."""
        flat = where_float64_is(_dense(tensor).flatten())
        self._signs = self._signs.to(flat.device)
        if len(flat) <= self._length:
            return (self._sums(flat) * self._chunk_signs[0]).cpu()
        chunks = zip(torch.split(flat, self._length), self._chunk_signs, strict=False)
        return reduce(add, [self._sums(chunk) * sign for chunk, sign in chunks]).cpu()

    def _sums(self, part: Tensor) -> Tensor:
        """Project up to a chunk's numbers, without the chunk's own sign: float64 [size]."""
        at_once = _at_once(part, self.size)
        if len(part) <= at_once:
            return self._sum(part, 0)
        return reduce(add, [self._sum(numbers, at_once * i) for i, numbers in enumerate(torch.split(part, at_once))])

    def _sum(self, numbers: Tensor, start: int) -> Tensor:
        """Project a chunk's numbers from a place on: float64 [size]."""
        exact = numbers if numbers.dtype in _EXACT else numbers.double()
        signed = (exact * self._signs.narrow(0, start, len(numbers))).double()
        if short := -len(signed) % self.size:
            signed = torch.nn.functional.pad(signed, (0, short))
        return signed.view(-1, self.size).sum(0)


def _at_once(flat: Tensor, multiple_of: int = 1) -> int:
    """Return how many of a tensor's numbers are best looked at together: on a GPU each look costs a launch."""
    if flat.device.type != "cpu":
        return max(1, len(flat))
    return max(1, _CACHED // multiple_of) * multiple_of


def norm(tensor: Tensor) -> float:
    """Return the L2 norm, summed in float64."""
    flat = where_float64_is(_dense(tensor).flatten())
    if flat.device.type != "cpu":
        flat = flat if flat.is_floating_point() else flat.double()
        return float(torch.linalg.vector_norm(flat, dtype=torch.float64))
    # On a CPU vector_norm turns numbers into float64 one by one, at six times the cost.
    if len(flat) <= _CACHED // 2:
        return math.sqrt(flat.to(torch.float64, copy=True).square_().sum())
    parts = torch.split(flat, _CACHED // 2)
    squares = [part.to(torch.float64, copy=True).square_().sum() for part in parts]
    return float(torch.stack(squares).sum().sqrt())


LEVELS = 16
"""Levels of `levels`: a number on the last one is at most a billionth of the root mean square."""


def levels(tensor: Tensor) -> Tensor:
    """Return which part of a tensor's elements is how small: float64 [LEVELS], on the CPU.

    An element x on level k has |x| from 4^-(k+1) to 4^-k of the root mean square; the first level also holds the larger
    ones, the last one the smaller ones. Zeros are on none.
    """
    flat = where_float64_is(_dense(tensor).flatten()).float()
    if not len(flat):
        return torch.zeros(LEVELS, dtype=torch.float64)
    length, root = torch.linalg.vector_norm(flat), len(flat) ** 0.5
    fields, zeros = torch.zeros(_FIELDS, dtype=torch.int64, device=flat.device), len(flat)
    for numbers in torch.split(flat, _at_once(flat)):
        relative = numbers / length * root
        fields += torch.bincount((relative.view(torch.int32) >> 23) & (_FIELDS - 1), minlength=_FIELDS)
        zeros -= int(torch.count_nonzero(relative))
    fields[0] -= zeros
    found = torch.zeros(LEVELS, dtype=torch.int64).index_add(0, _level_of_field(), fields[:-1].cpu())
    return found.double() / len(flat)


_FIELDS = 256
"""Values of a float32's exponent field (IEEE 754)."""


@cache
def _level_of_field() -> Tensor:
    """Return the level of each exponent field but the last, whose numbers are not finite: int64 [255].

    A number of field f lies from 2^(f-127) to 2^(f-126).
    """
    return (126 - torch.arange(_FIELDS - 1)).clamp(0, 2 * LEVELS - 1) // 2


def digest(tensor: Tensor) -> int:
    """Hash a tensor's bits to 64: any one changed element changes it, and any other change but for bad luck."""
    flat = _dense(tensor).contiguous().flatten()
    bits = flat.view({1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int32}[flat.element_size()])
    total = torch.zeros((), dtype=torch.int64, device=bits.device)
    for index, part in enumerate(torch.split(bits, _CHUNK)):
        # Powers of an odd number, and odd weights: no factor is lost modulo 2^64.
        total = total * _MIX[0] + _weighted(part) + index
    return int(total)


def _weighted(bits: Tensor) -> Tensor:
    """Sum up to a chunk's integers, each times the odd weight of its place, modulo 2^64."""
    at_once, total = _at_once(bits), torch.zeros((), dtype=torch.int64, device=bits.device)
    weights = _weights(len(bits), bits.device)
    for start in range(0, len(bits), at_once):
        part = slice(start, start + at_once)
        total += (bits[part].to(torch.int64) * weights[part]).sum()
    return total


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


@cache
def _weights(count: int, device: torch.device) -> Tensor:
    numbers = torch.arange(1, count + 1, device=device) * _MIX[0]
    return (numbers ^ (numbers >> 31)) * _MIX[1] | 1


@cache
def _signs(length: int, seed: int) -> tuple[Tensor, list[float]]:
    """Draw the signs of a chunk's numbers: float32 [length]; and of as many chunks as any tensor has."""
    generator = torch.Generator().manual_seed(seed)
    return _random_signs(length, generator), _random_signs(1 << 16, generator).tolist()


def _random_signs(count: int, generator: torch.Generator) -> Tensor:
    return (torch.randint(0, 2, (count,), generator=generator, dtype=torch.float64) * 2 - 1).float()
