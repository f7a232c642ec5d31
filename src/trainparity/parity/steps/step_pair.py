"""One traced step of two runs: what both have recorded of it, how far it is apart, and how far twins are."""

from dataclasses import dataclass, field
from functools import cached_property

import torch
from torch import Tensor

from trainparity.parity.noise.distance import Compared, distances, names, sketches, times
from trainparity.parity.noise.floor import Floor
from trainparity.parity.noise.margin import is_coarse
from trainparity.parity.recording.names import INPUT, module_of
from trainparity.parity.recording.trace import Trace
from trainparity.parity.steps.fitting import fit


@dataclass(frozen=True)
class StepPair:
    """The reference (`left`), the other run (`right`) and the row of a traced step."""

    left: Trace
    right: Trace
    floor: Floor
    margin: float
    row: int
    runs: tuple[str, str] = ("the reference", "the other run")
    """What both runs are called."""
    known: dict[Compared, Tensor] = field(default_factory=dict, repr=False, compare=False)
    """Distances of all steps that were computed before; the differences of one comparison's steps share them."""

    @property
    def goes_on(self) -> bool:
        """Whether the step before is traced, too, and no window begins between: weights are what it has left."""
        return self.row in self.left.layout.rows_that_go_on()

    @property
    def traces(self) -> tuple[Trace, Trace]:
        """The reference's trace, and the other run's."""
        return self.left, self.right

    @property
    def step(self) -> int:
        """The optimizer step of `row`."""
        return self.left.layout.steps[self.row]

    def pair(self, name: str) -> tuple[Tensor, Tensor] | None:
        """Return an array of both runs at the step; None if one of them has not recorded it."""
        if name not in self.left.arrays or name not in self.right.arrays:
            return None
        return self.at(name)

    def at(self, name: str) -> tuple[Tensor, Tensor]:
        """Return an array of both runs at the step, one that every trace has."""
        return self.left.arrays[name][self.row], self.right.arrays[name][self.row]

    def named(self, found: Tensor) -> list[str]:
        """Return the names of parameters that a mask has found."""
        return [name for name, one in zip(self.left.layout.parameters, found.tolist(), strict=True) if one]

    def place(self, parameter: str) -> int:
        """Return where a parameter stands in the arrays of all."""
        return list(self.left.layout.parameters).index(parameter)

    def numbers(self, name: str) -> tuple[float, float]:
        """Return a number of both runs at the step, summed over ranks; zero where it was not recorded."""
        left, right = self.pair(name) or (torch.zeros(()), torch.zeros(()))
        return float(left.sum()), float(right.sum())

    def who(self, in_left: bool) -> str:
        """Name the run in which something is."""
        return self.runs[0] if in_left else self.runs[1]

    @property
    def same_precision(self) -> bool:
        """Whether both runs compute in one precision."""
        return self.left.layout.precision == self.right.layout.precision

    def kind_of(self, activation: str) -> str:
        """Return the class of the module that an activation is of; empty where none has that name."""
        return self.left.layout.modules.get(module_of(activation), "")

    def is_running_statistic(self, buffer: str) -> bool:
        """Tell whether a buffer, by its name, is one of BatchNorm's, or of a normalisation like it."""
        kind = self.kind_of(buffer.rpartition(".")[0])
        return "BatchNorm" in kind or "InstanceNorm" in kind

    def norms(self, kind: Compared) -> tuple[Tensor, Tensor]:
        """Return the norms of a kind's tensors in both runs at the step: float64 [n]."""
        return tuple(_norms(trace, kind, self.row) for trace in self.traces)  # type: ignore[return-value]

    def distances(self, kind: Compared) -> Tensor:
        """Return the relative distances of a kind's tensors, and of all together, at all steps: [T, tensors + 1]."""
        if kind not in self.known:
            self.known[kind] = distances(self.left, self.right, kind)
        return self.known[kind]

    def distance(self, kind: Compared) -> float:
        """Return the relative distance of all tensors of a kind together at the step."""
        return float(self.distances(kind)[self.row, -1])

    def noise(self, kind: Compared) -> float:
        """Return the floor of all tensors of a kind together at the step."""
        return float(self.floor[kind][self.row, -1])

    def beyond_margin(self, kind: Compared) -> list[str]:
        """Return the tensors of a kind that are beyond the margin, in the model's order."""
        row = times(self.distances(kind)[self.row], self.floor[kind][self.row])
        return [
            name for name, multiple in zip(names(self.left, kind), row.tolist(), strict=True) if multiple > self.margin
        ]

    @cached_property
    def scale(self) -> tuple[float, float]:
        """The number that the reference's gradient is to be multiplied by to come nearest, and what is left over."""
        return fit(
            sketches(self.left, "gradient")[self.row].flatten(), sketches(self.right, "gradient")[self.row].flatten()
        )

    @cached_property
    def own_scale(self) -> tuple[float, float] | None:
        """The same of what backward passes made, of each run the mean over ranks; None where that was not recorded."""
        pairs = list(zip(self.micro(), self.traces, strict=True))
        if not all(len(micro) for micro, _ in pairs):
            return None
        ours, theirs = (micro.sum(0) / trace.layout.world_size for micro, trace in pairs)
        return fit(ours, theirs)

    @property
    def own_factor(self) -> float:
        """The number of `own_scale`; 1 where it is not known."""
        return self.own_scale[0] if self.own_scale else 1.0

    @property
    def tolerance(self) -> float:
        """What may be left over when one gradient is explained by another: rounding, no more."""
        units = max(trace.layout.unit_roundoff for trace in self.traces)
        several = 1 if is_coarse(self.left.layout) else 4  # else anything would explain anything
        return several * max(self.margin * self.noise("gradient"), 16 * units)

    @property
    def is_a_multiple(self) -> bool:
        """Whether the whole gradient is the reference's times a number, as no other samples or passes make it."""
        factor, rest = self.scale
        return not is_coarse(self.left.layout) and rest <= self.tolerance < abs(factor - 1)

    def micro(self) -> tuple[Tensor, Tensor]:
        """Return the sketches of all ranks' micro-batch gradients of both runs: float64 [n, 256]."""
        found = self.pair("rank/micro")
        if found is None:
            return torch.zeros(0, 0), torch.zeros(0, 0)
        left, right = (sketch.flatten(0, 1) for sketch in found)
        return left[left.abs().sum(1) > 0], right[right.abs().sum(1) > 0]

    @property
    def of_other_size(self) -> set[str]:
        """What has more numbers in one run of both, such as those of further padding: its sums can't agree."""
        return {name for name, (ours, theirs) in self._counts().items() if ours != theirs}

    @property
    def padded_otherwise(self) -> set[str]:
        """What of that has several numbers for each sample in both runs, as a mask of another length.

        Not what has as many as the tokens that samples are known by: of those a sample's own alone count, as of a mask.
        """
        samples, counts = max(self.numbers("num_samples")), self._counts()
        tokens = next((counts[name] for name in counts if name.startswith(INPUT)), None)
        return {name for name in self.of_other_size if min(counts[name]) > samples and counts[name] != tokens}

    def numbers_of(self, activation: str) -> tuple[int, int]:
        """Return of how many numbers an activation is in both runs, which both have."""
        return self._counts()[activation]

    def _counts(self) -> dict[str, tuple[int, int]]:
        """Return of how many numbers both runs' activations are, of those that both have."""
        left, right = (trace.numbers(self.row) for trace in self.traces)
        return {name: (left[name], right[name]) for name in left if name in right}


def _norms(trace: Trace, kind: Compared, row: int) -> Tensor:
    recorded = trace.arrays.get(f"{kind}/norm")
    return recorded[row] if recorded is not None else torch.linalg.vector_norm(sketches(trace, kind)[row], dim=-1)
