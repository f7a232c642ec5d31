"""Tensors that autograd saves for backward, within a limit of device memory: some wait in host memory.

Copies go through a stream of their own beside the computation, into page-locked buffers that are used again. A tensor
is fetched back before backward needs it, as soon as there is room. A CPU copies in place of a stream, so the counts and
the training are those of a GPU. (https://docs.pytorch.org/docs/stable/autograd.html#saved-tensors-hooks)
"""

import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from trainparity.training.host_buffers import HostBuffers

SMALLEST = 1 << 20
"""Bytes: a smaller tensor is neither moved nor counted."""

_Format = tuple[torch.Size, tuple[int, ...], torch.dtype, bool, bool]


class SavedTensors:
    """The large tensors that are saved for the backward passes to come."""

    def __init__(self, device: torch.device, limit: int, smallest: int = SMALLEST) -> None:
        """Keep to a limit of bytes on the device, but for a tensor that is being saved or used."""
        self.device, self.limit, self._smallest = device, limit, smallest
        self.reserve = 0
        """Bytes of the limit that backward needs for something else: nothing is fetched ahead into them."""
        self.on_device = 0
        """Bytes on the device now."""
        self.peak = 0
        """The most that there were."""
        self.total = 0
        """Bytes that were saved so far, moved or not."""
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None  # type: ignore[no-untyped-call]
        self._leaving: dict[int, _Saved] = {}
        """Those that are being copied to host memory, in order."""
        self._kept: dict[int, weakref.ref[_Saved]] = {}
        """Those that stay, in order."""
        self._away: list[weakref.ref[_Saved]] = []
        """Those that went there, in order: backward needs them from the end."""
        self._by_address: weakref.WeakValueDictionary[int, _Saved] = weakref.WeakValueDictionary()
        self._buffers = HostBuffers(pinned=self._stream is not None)

    @contextmanager
    def saving(self, model: nn.Module, *, to_host: bool) -> Iterator[None]:
        """Count what a forward pass of a model saves, and move it to host memory or not; parameters stay."""
        parameters = {_address(parameter) for parameter in model.parameters()}

        def pack(tensor: Tensor) -> "Tensor | _Saved":
            is_plain = type(tensor) is Tensor and tensor.device.type == self.device.type
            stays = not is_plain or tensor.nbytes < self._smallest or _is_expanded(tensor)
            if stays or _address(tensor) in parameters:
                # An output that knows its node would hold what holds it, for ever where no backward pass comes.
                return tensor if tensor.grad_fn is None else tensor.detach()
            return self._again(tensor) or self._save(tensor, to_host=to_host)

        with torch.autograd.graph.saved_tensors_hooks(pack, self._unpack):
            yield

    def _again(self, tensor: Tensor) -> "_Saved | None":
        """Return what was saved of the same tensor before: an activation's output is the next layer's input."""
        saved = self._by_address.get(_address(tensor))
        return saved if saved is not None and saved.is_of(tensor) else None

    def _save(self, tensor: Tensor, *, to_host: bool) -> "_Saved":
        saved = _Saved(self, tensor)
        self._by_address[_address(tensor)] = saved
        self.total += saved.nbytes
        self.count(saved.nbytes)
        if to_host:
            self._send(saved)
        else:
            self._kept[id(saved)] = weakref.ref(saved)
        self._make_room()
        return saved

    def _make_room(self) -> None:
        """Send what was to be kept, the oldest first, until the rest is within the limit."""
        self._free_what_has_gone()
        while self.on_device > self.limit and self._kept:
            saved = self._kept.pop(next(iter(self._kept)))()
            if saved is not None:
                self._send(saved)
                self._free_what_has_gone()

    def _free_what_has_gone(self) -> None:
        """Let go of what has gone to host memory; above the limit the computation waits for what is on its way."""
        while self._leaving:
            first = next(iter(self._leaving.values()))
            if first.copied is not None and not first.copied.query():  # type: ignore[no-untyped-call]
                if self.on_device <= self.limit:
                    return
                torch.cuda.current_stream(self.device).wait_event(first.copied)
            self._let_go(first)

    def count(self, nbytes: int) -> None:
        """Note bytes that came to the device, or left it if negative."""
        self.on_device += nbytes
        self.peak = max(self.peak, self.on_device)

    def _send(self, saved: "_Saved") -> None:
        assert saved.tensor is not None
        saved.host, saved.free_host = self._buffers.like(saved.tensor)
        self._away.append(weakref.ref(saved))
        self._leaving[id(saved)] = saved
        saved.copied = self._copy(saved.host, saved.tensor)

    def _let_go(self, saved: "_Saved") -> None:
        """Free the device's memory of a tensor whose copy is done, or waited for by the computation."""
        del self._leaving[id(saved)]
        saved.check()
        saved.tensor = None
        self.count(-saved.nbytes)

    def _copy(self, to: Tensor, source: Tensor) -> "torch.cuda.Event | None":
        """Copy when the computation so far is done; return the event after it."""
        if self._stream is None:
            to.copy_(source)
            return None
        # Memory is given out in the order of the computation's stream: what used it before is done then, too.
        self._stream.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(self._stream):
            to.copy_(source, non_blocking=True)
            done: torch.cuda.Event = self._stream.record_event()
            return done

    def _unpack(self, saved: "Tensor | _Saved") -> Tensor:
        if isinstance(saved, Tensor):
            return saved
        tensor = self._present(saved)
        self._fetch_ahead()
        return tensor

    def _present(self, saved: "_Saved") -> Tensor:
        if saved.tensor is None:
            self._fetch(saved)
        if saved.copied is not None:  # back from the host, or not yet gone: its memory may be free after this
            torch.cuda.current_stream(self.device).wait_event(saved.copied)
        self._leaving.pop(id(saved), None)
        saved.check()
        assert saved.tensor is not None
        return saved.tensor

    def _fetch_ahead(self) -> None:
        """Fetch what backward needs next, as far as there is room; for two tensors there always is."""
        while self._away:
            saved = self._away[-1]()
            if saved is not None and saved.tensor is None:
                if self.on_device + saved.nbytes > max(self.limit - self.reserve, 2 * saved.nbytes):
                    return
                self._fetch(saved)
            self._away.pop()

    def _fetch(self, saved: "_Saved") -> None:
        assert saved.host is not None
        saved.tensor = torch.empty_like(saved.host, device=self.device)
        saved.copied = self._copy(saved.tensor, saved.host)
        saved.version = saved.tensor._version
        self.count(saved.nbytes)

    def give_back(self, saved: "_Saved") -> None:
        """Take the memory of a tensor that backward needs no more."""
        self._kept.pop(id(saved), None)
        if saved.tensor is not None:
            self.count(-saved.nbytes)
        if saved.free_host is not None:  # the stream's order makes it safe to use its memory again at once
            saved.free_host()


class _Saved:
    """One saved tensor: on the device, in host memory, or in both."""

    def __init__(self, held_by: SavedTensors, tensor: Tensor) -> None:
        self._held_by = held_by
        self.tensor: Tensor | None = tensor.detach()  # see `saving`
        self.host: Tensor | None = None
        self.free_host: Callable[[], None] | None = None
        self.copied: torch.cuda.Event | None = None
        """After the copy that was begun last."""
        self.nbytes, self.version = tensor.nbytes, tensor._version
        self.format = _format(tensor)

    def is_of(self, tensor: Tensor) -> bool:
        """Return whether a tensor is this one, at the same place and unchanged."""
        mine = self.tensor
        if mine is None or mine.storage_offset() != tensor.storage_offset():
            return False
        return self.format == _format(tensor) and _address(mine) == _address(tensor) and self.version == tensor._version

    def check(self) -> None:
        """Raise `RuntimeError` if the tensor was changed since it was saved, as autograd does without hooks."""
        if self.tensor is not None and self.tensor._version != self.version:
            raise RuntimeError(
                f"a tensor {list(self.format[0])} that backward needs was changed in place after it was saved"
            )

    def __del__(self) -> None:
        self._held_by.give_back(self)


def _format(tensor: Tensor) -> _Format:
    return tensor.shape, tensor.stride(), tensor.dtype, tensor.is_conj(), tensor.is_neg()


def _is_expanded(tensor: Tensor) -> bool:
    """Tell whether a tensor repeats numbers, and so has more of them than its memory."""
    return any(stride == 0 and size > 1 for stride, size in zip(tensor.stride(), tensor.shape, strict=True))


def _address(tensor: Any) -> int:
    local = getattr(tensor, "_local_tensor", tensor)  # of a DTensor
    address: int = local.untyped_storage().data_ptr()
    return address
