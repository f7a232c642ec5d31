"""The arrays of one step's `Trace`, made of the model's tensors."""

from collections.abc import Sequence

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

    def record(self, kind: str, tensors: Sequence[Tensor | None]) -> int:
        """Record tensors of a kind; a missing one counts as zero. Return a hash over all, on every rank."""
        count, combined = len(tensors), 0
        sketches = torch.zeros(count, self._sketch.size, dtype=torch.float64)
        norms, digests = torch.zeros(count, dtype=torch.float64), torch.zeros(count, dtype=torch.int64)
        small = torch.zeros(count, LEVELS, dtype=torch.float64)
        for index, whole in enumerate(full_each(tensors)):
            if whole is None:
                continue
            hashed = digest(whole)
            digests[index], combined = hashed, derived_seed(combined, hashed)
            if ranks.rank() == 0:
                norms[index], sketches[index] = norm(whole), self._sketch(whole)
                if kind == GRADIENT:
                    small[index] = levels(whole)
        if kind == GRADIENT:
            self["gradient/levels"] = small
        self.update({f"{kind}/sketch": sketches, f"{kind}/norm": norms, f"{kind}/digest": digests})
        return combined

    def record_start(self, parameters: Sequence[Tensor]) -> None:
        """Record what the update starts from, by its sketch."""
        self["start/sketch"] = torch.stack([self._main_sketch(p) for p in full_each(parameters)])

    def _main_sketch(self, tensor: Tensor) -> Tensor:
        """Sketch on rank 0; the other ranks need none."""
        return self._sketch(tensor) if ranks.rank() == 0 else torch.zeros(self._sketch.size, dtype=torch.float64)


def norms(tensors: Sequence[Tensor | None]) -> Tensor:
    """Return the norms of tensors, float64 [P]; that of a missing one is 0. Every rank must call it."""
    return torch.tensor([0.0 if whole is None else norm(whole) for whole in full_each(tensors)], dtype=torch.float64)
