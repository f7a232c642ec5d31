"""What the blocks of a model take in a forward pass: bytes, seconds, and whether their inputs are changed after it."""

import weakref
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from trainparity.training.activation_checkpointing import versioned
from trainparity.training.saved_tensors import SMALLEST, SavedTensors


class BlockMeasures:
    """Of one forward pass."""

    def __init__(self, count: int, device: torch.device) -> None:
        """Measure so many blocks."""
        self._on_gpu = device.type == "cuda"
        self.saved = [0] * count
        """Bytes that each block saves."""
        self.given = 0
        """Bytes that all blocks are given."""
        self._marks: defaultdict[int, list[tuple[Any, Any]]] = defaultdict(list)

    def give(self, inputs: Any) -> None:
        """Note what a block is given."""
        self.given += sum(leaf.nbytes for leaf in tree_leaves(inputs) if isinstance(leaf, Tensor))

    @contextmanager
    def measuring(self, number: int, saved: SavedTensors) -> Iterator[None]:
        """Measure a call of a block; one that is called several times takes the sum."""
        before, begun = saved.total, self._mark()
        yield
        self._marks[number].append((begun, self._mark()))
        self.saved[number] += saved.total - before

    def _mark(self) -> Any:
        if not self._on_gpu:
            return perf_counter()
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record()
        return event

    def seconds(self) -> list[float]:
        """Return each block's, by the device's clock: the shortest call's, times its calls."""
        if self._on_gpu:
            torch.cuda.synchronize()
        return [self._shortest(number) * len(self._marks[number]) for number in range(len(self.saved))]

    def _shortest(self, number: int) -> float:
        if self._on_gpu:
            return min((float(begun.elapsed_time(end)) / 1e3 for begun, end in self._marks[number]), default=0.0)
        return min((float(end - begun) for begun, end in self._marks[number]), default=0.0)


class InputsWatch:
    """Which blocks have inputs that the model changes in place: such a block can't be computed again."""

    def __init__(self) -> None:
        self.changed: set[int] = set()
        """Their numbers."""
        self._seen: list[tuple[int, weakref.ref[Tensor], int]] = []
        self._held: list[Tensor] = []
        """Small ones, and the last block's, whatever the model does with them; others as long as it has them."""

    def see(self, number: int, inputs: Any) -> None:
        """Look at what a block is given, and again at what those before it were."""
        self.look()
        leaves = versioned(inputs)
        held = [leaf.detach() for leaf in leaves]  # without its graph
        whole = [leaf._base for leaf in leaves if leaf._base is not None]  # a view may be gone, and what it shows not
        self._seen += [(number, weakref.ref(each), each._version) for each in (*leaves, *held, *whole)]
        self._held = [each for each in self._held if each.nbytes < SMALLEST] + held

    def look(self) -> None:
        """Look again at what blocks were given, as far as it is there."""
        for number, reference, version in self._seen:
            if (leaf := reference()) is not None and leaf._version != version:
                self.changed.add(number)

    def close(self) -> None:
        """Look no more."""
        self._seen.clear()
        self._held.clear()


def bytes_per_s(device: torch.device) -> float:
    """Measure the rate of copies between device and page-locked host memory, in the slower direction."""
    on_gpu = device.type == "cuda"
    host = torch.ones(_PROBE_BYTES, dtype=torch.uint8, pin_memory=on_gpu)
    other = torch.ones(_PROBE_BYTES, dtype=torch.uint8, device=device)
    return min(max(_rate(to, source) for _ in range(3)) for to, source in ((host, other), (other, host)))


def _rate(to: Tensor, source: Tensor) -> float:
    started = perf_counter()
    to.copy_(source)
    if to.is_cuda or source.is_cuda:
        torch.cuda.synchronize()
    return to.nbytes / (perf_counter() - started)


_PROBE_BYTES = 1 << 26
