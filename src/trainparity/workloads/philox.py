"""Philox4x64-10 (Salmon et al., SC 2011) for many counters at once: the words that NumPy's gives for each alone."""

import numpy as np
from numpy.typing import NDArray

Words = NDArray[np.uint64]

_MULTIPLIERS = np.array([[0xD2E7470EE14C6C93], [0xCA5A826395121157]], dtype=np.uint64)
_WEYL = np.array([[0x9E3779B97F4A7C15], [0xBB67AE8584CAA73B]], dtype=np.uint64)
_LOW, _HALF = np.uint64(0xFFFFFFFF), np.uint64(32)
_ROUNDS = 10


def words(key: Words, draw: int, samples: Words, count: int) -> Words:
    """Return 32-bit words, uint64 [B, count]: those of counters that begin with `draw` and one of the samples [B]."""
    blocks = -(-count // 8)
    # NumPy counts up before its first block, and hands the lower half of a 64-bit word out first.
    counters = np.empty((4, len(samples), blocks), dtype=np.uint64)
    counters[0], counters[1], counters[2] = np.arange(1, blocks + 1, dtype=np.uint64), 0, draw
    counters[3] = samples[:, None]
    made = _philox(counters.reshape(4, -1), key).reshape(4, len(samples), blocks)
    halves = np.stack([made & _LOW, made >> _HALF], axis=-1)  # [4, B, blocks, 2]
    return halves.transpose(1, 2, 0, 3).reshape(len(samples), -1)[:, :count]


def _philox(counters: Words, key: Words) -> Words:
    """Scramble counters [4, N]."""
    even, odd, keys = counters[::2], counters[1::2], key[:, None].copy()
    for _ in range(_ROUNDS):
        high, low = _product(even)
        even, odd = high[::-1] ^ odd ^ keys, low[::-1]
        keys += _WEYL
    return np.stack([even[0], odd[0], even[1], odd[1]])


def _product(numbers: Words) -> tuple[Words, Words]:
    """Multiply each row [2, N] with its multiplier; return the upper and the lower 64 bits."""
    (a_high, a_low), (b_high, b_low) = ((n >> _HALF, n & _LOW) for n in (_MULTIPLIERS, numbers))
    first = a_low * b_low
    second = a_high * b_low + (first >> _HALF)
    third = a_low * b_high + (second & _LOW)
    return a_high * b_high + (second >> _HALF) + (third >> _HALF), _MULTIPLIERS * numbers
