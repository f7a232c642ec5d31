"""Host memory that tensors wait in: page-locked for a GPU, and used again, as locking pages takes long."""

from collections import OrderedDict
from collections.abc import Callable

import torch
from torch import Tensor


class HostBuffers:
    """Buffers of rounded sizes. No more of them are held than were in use at a time."""

    def __init__(self, *, pinned: bool) -> None:
        self._pinned = pinned
        self._free: OrderedDict[int, list[Tensor]] = OrderedDict()
        """By their size, those first that were used least lately."""
        self._free_bytes = self._used_bytes = self._most_bytes = 0

    @property
    def nbytes(self) -> int:
        """Bytes of all buffers, in use or not."""
        return self._used_bytes + self._free_bytes

    def like(self, tensor: Tensor) -> tuple[Tensor, Callable[[], None]]:
        """Return a host tensor of a tensor's shape, strides and dtype, and what gives its memory back."""
        format_of = torch.empty_like(tensor, device="meta")  # dense, where the tensor itself has gaps
        buffer = self._take(_rounded(format_of.nbytes))
        numbers = buffer[: format_of.nbytes].view(format_of.dtype)
        return numbers.as_strided(format_of.shape, format_of.stride()), lambda: self._give_back(buffer)

    def _take(self, nbytes: int) -> Tensor:
        self._used_bytes += nbytes
        self._most_bytes = max(self._most_bytes, self._used_bytes)
        if free := self._free.get(nbytes):
            self._free.move_to_end(nbytes)
            self._free_bytes -= nbytes
            return free.pop()
        self._make_room()
        return torch.empty(nbytes, dtype=torch.uint8, pin_memory=self._pinned)

    def _make_room(self) -> None:
        """Let go of buffers of other sizes beyond what was in use at a time."""
        while self._free_bytes and self.nbytes > self._most_bytes:
            size, free = next(iter(self._free.items()))
            if free:
                free.pop()
                self._free_bytes -= size
            else:
                del self._free[size]

    def _give_back(self, buffer: Tensor) -> None:
        self._used_bytes -= buffer.nbytes
        self._free_bytes += buffer.nbytes
        self._free.setdefault(buffer.nbytes, []).append(buffer)
        self._free.move_to_end(buffer.nbytes)


def _rounded(nbytes: int) -> int:
    """Return a size with three leading bits, so that sizes that vary fall together: up to a quarter more."""
    step = 1 << max(0, nbytes.bit_length() - 3)
    return max(8, -(-nbytes // step) * step)
