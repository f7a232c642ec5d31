"""The arrays of one step's `Trace`, made of the model's tensors."""

from collections.abc import Iterable, Iterator, Sequence
from functools import reduce

from torch import Tensor

from trainparity.parity.recording import ranks, stacks
from trainparity.parity.recording.seeds import derived_seed
from trainparity.parity.recording.shards import full_each
from trainparity.parity.recording.sketch import Sketcher

GRADIENT = "gradient"
"""The kind of tensors of which the sizes of the smallest numbers are recorded too."""


class Snapshot(dict[str, Tensor]):
    """A step's arrays by name, complete on rank 0."""

    def __init__(self, sketch: Sketcher) -> None:
        super().__init__()
        self._sketch = sketch

    def record(self, kind: str, tensors: Iterable[Tensor | None]) -> int:
        """Record tensors of a kind; a missing one counts as zero. Return a hash over all, on every rank."""
        there: list[bool] = []

        def noted() -> Iterator[Tensor | None]:
            for tensor in full_each(tensors):
                there.append(tensor is not None)
                yield tensor

        measures = self._measures(kind)
        found = dict(zip(measures, stacks.measured(noted(), *measures.values()), strict=True))
        self.update({f"{kind}/{name}": values for name, values in found.items()})
        hashes = (hashed for hashed, is_there in zip(found["digest"].tolist(), there, strict=True) if is_there)
        return reduce(derived_seed, hashes, 0)

    def _measures(self, kind: str) -> dict[str, stacks.Measure]:
        """Return what is measured of a kind; by the other ranks hashes alone."""
        measures = {"norm": stacks.norms, "sketch": stacks.sketches(self._sketch)}
        if kind == GRADIENT:
            measures["levels"] = stacks.levels
        if ranks.rank():
            measures = {name: stacks.zeros(measure) for name, measure in measures.items()}
        return {"digest": stacks.digests, **measures}

    def record_start(self, parameters: Sequence[Tensor]) -> None:
        """Record what the update starts from, by its sketch; the other ranks need none."""
        sketches = stacks.sketches(self._sketch)
        measure = stacks.zeros(sketches) if ranks.rank() else sketches
        (self["start/sketch"],) = stacks.measured(full_each(parameters), measure)


def norms(tensors: Iterable[Tensor | None]) -> Tensor:
    """Return the norms of tensors, float64 [P]; that of a missing one is 0. Every rank must call it."""
    (found,) = stacks.measured(full_each(tensors), stacks.norms)
    return found
