"""The arrays of one step's `Trace`, made of the model's tensors."""

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from trainparity.parity.recording import ranks
from trainparity.parity.recording.seeds import derived_seed
from trainparity.parity.recording.shards import full_each
from trainparity.parity.recording.sketch import LEVELS, Sketcher, digest, levels, norm

GRADIENT = "gradient"
"""The kind of tensors of which the sizes of the smallest numbers are recorded too."""


class Snapshot(dict[str, Tensor]):
    """A step's arrays by name, complete on rank 0."""

    def __init__(self, sketch: Sketcher) -> None:
        super().__init__()
        self._sketch = sketch

    def record(self, kind: str, tensors: Iterable[Tensor | None]) -> int:
        """Record tensors of a kind; a missing one counts as zero. Return a hash over all, on every rank."""
        combined = 0
        zeros = torch.zeros(self._sketch.size, dtype=torch.float64), torch.zeros(LEVELS, dtype=torch.float64)
        sketches, small, lengths, digests = [], [], [], []
        for whole in full_each(tensors):
            hashed = 0 if whole is None else digest(whole)
            digests.append(hashed)
            if whole is not None:
                combined = derived_seed(combined, hashed)
            seen = whole if ranks.rank() == 0 else None
            lengths.append(0.0 if seen is None else norm(seen))
            sketches.append(zeros[0] if seen is None else self._sketch(seen))
            small.append(zeros[1] if seen is None or kind != GRADIENT else levels(seen))
        if kind == GRADIENT:
            self["gradient/levels"] = _stacked(small, LEVELS)
        self[f"{kind}/sketch"] = _stacked(sketches, self._sketch.size)
        self[f"{kind}/norm"] = torch.tensor(lengths, dtype=torch.float64)
        self[f"{kind}/digest"] = torch.tensor(digests, dtype=torch.int64)
        return combined

    def record_start(self, parameters: Sequence[Tensor]) -> None:
        """Record what the update starts from, by its sketch."""
        self["start/sketch"] = torch.stack([self._main_sketch(p) for p in full_each(parameters)])

    def _main_sketch(self, tensor: Tensor) -> Tensor:
        """Sketch on rank 0; the other ranks need none."""
        return self._sketch(tensor) if ranks.rank() == 0 else torch.zeros(self._sketch.size, dtype=torch.float64)


def _stacked(rows: Sequence[Tensor], size: int) -> Tensor:
    """Stack rows, of which there may be none, as of a model without buffers: float64 [rows, size]."""
    return torch.stack([*rows]) if rows else torch.zeros(0, size, dtype=torch.float64)


def norms(tensors: Iterable[Tensor | None]) -> Tensor:
    """Return the norms of tensors, float64 [P]; that of a missing one is 0. Every rank must call it."""
    return torch.tensor([0.0 if whole is None else norm(whole) for whole in full_each(tensors)], dtype=torch.float64)
