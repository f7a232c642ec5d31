"""Two traces at the first step that is beyond the noise floor: what the search for the cause looks at."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal

import torch
from torch import Tensor

from trainparity.parity.chain import Chain
from trainparity.parity.distance import ALL, KINDS, Compared, distances, names, sketches, times
from trainparity.parity.fitting import fit
from trainparity.parity.floor import Floor
from trainparity.parity.hidden_passes import other_loss_of_same_bits, passes_part
from trainparity.parity.margin import is_coarse
from trainparity.parity.recording.names import INPUT, module_of
from trainparity.parity.recording.trace import Trace
from trainparity.parity.updates import made_otherwise

Stage = Literal["gradient", "update", "buffer"]


@dataclass(frozen=True)
class Difference:
    """The reference (`left`), the other run (`right`) and the row of the first traced step where they differ."""

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

    @cached_property
    def beyond(self) -> Mapping[Compared, list[str]]:
        """The tensors beyond the margin at the step, by kind, each in the model's order."""
        kinds: tuple[Compared, ...] = ("start", "activation", *KINDS)
        return {kind: self._beyond(kind) for kind in kinds}

    def _beyond(self, kind: Compared) -> list[str]:
        if kind == "activation":
            return self.chain.forward
        row = times(self.distances(kind)[self.row], self.floor[kind][self.row])
        others = set(self.made_otherwise) if kind == "update" else set()
        return [
            name
            for name, multiple in zip(names(self.left, kind), row.tolist(), strict=True)
            if multiple > self.margin or name in others
        ]

    @cached_property
    def made_otherwise(self) -> list[str]:
        """The parameters whose update differs though what goes into the step agrees, and the floor may hide it."""
        return made_otherwise(self)

    @property
    def stage(self) -> Stage | None:
        """What is off first within the step: the gradient, else the update (or weights), else only buffers."""
        if self.beyond["gradient"] or self.passes_part:
            return "gradient"
        if self.beyond["update"] or self.beyond["weight"]:
            return "update"
        return "buffer" if self.beyond["buffer"] else None

    @cached_property
    def fed_by_buffers(self) -> bool:
        """Whether buffers alone differ, for the first time, and the training from the next step on, made with them.

        No loss of a training is made with BatchNorm's running statistics.
        """
        if self.stage != "buffer" or self.row + 1 == len(self.left.layout.steps):
            return False
        off = times(self.distances("buffer"), self.floor["buffer"])[: self.row + 1] > self.margin
        others = [not self.is_running_statistic(name) for name in self.left.layout.buffers]
        seen = off[:, :-1][:, others].any(1)
        later = replace(self, row=self.row + 1)
        parts = later.stage in ("gradient", "update") or later.passes_part
        return bool(seen[-1] and not seen[:-1].any()) and parts

    def is_running_statistic(self, buffer: str) -> bool:
        """Tell whether a buffer, by its name, is one of BatchNorm's, or of a normalisation like it."""
        kind = self.kind_of(buffer.rpartition(".")[0])
        return "BatchNorm" in kind or "InstanceNorm" in kind

    @cached_property
    def passes_part(self) -> bool:
        """Whether the forward pass or the loss differs though the floor of a coarse format may hide it in gradients."""
        return passes_part(self)

    @cached_property
    def other_loss_of_same_bits(self) -> bool:
        """Whether the loss of modules that return the same bits has another value, and its gradient differs."""
        return other_loss_of_same_bits(self)

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

    @property
    def may_be_update(self) -> bool:
        """Whether a fact of the update can explain the difference: gradients agree, or parted in untraced steps."""
        steps = self.left.layout.steps
        gap = self.row > 0 and steps[self.row] - steps[self.row - 1] > 1
        return self.stage != "gradient" or (gap and bool(self.beyond["start"]))

    @property
    def first_tensor(self) -> str:
        """The first tensor that is off: forward order for activations, backward order for gradients."""
        for kind in ("activation", "gradient", "update", "weight", "buffer"):
            tensors = [name for name in self.beyond[kind] if name != ALL] or self.beyond[kind]
            if tensors and not (kind == "activation" and self.stage != "gradient"):
                return f"{kind} {tensors[-1] if kind == 'gradient' else tensors[0]}"
        return ""

    @cached_property
    def chain(self) -> "Chain":
        """What the forward and backward passes of the step show, module by module."""
        return Chain.of(self)

    @cached_property
    def first_activation(self) -> str | None:
        """The first module in forward order whose output is off; None if none is, or none was recorded."""
        return next((name for name in self.beyond["activation"] if name != ALL), None)

    def activation_kind(self) -> str:
        """Return the class of the module whose output is the first to be off; empty if there is none."""
        return self.kind_of(self.first_activation or "")

    def kind_of(self, activation: str) -> str:
        """Return the class of the module that an activation is of; empty where none has that name."""
        return self.left.layout.modules.get(module_of(activation), "")

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

    def who(self, in_left: bool) -> str:
        """Name the run in which something is."""
        return self.runs[0] if in_left else self.runs[1]

    @property
    def same_precision(self) -> bool:
        """Whether both runs compute in one precision."""
        return self.left.layout.precision == self.right.layout.precision

    def micro(self) -> tuple[Tensor, Tensor]:
        """Return the sketches of all ranks' micro-batch gradients of both runs: float64 [n, 256]."""
        found = self.pair("rank/micro")
        if found is None:
            return torch.zeros(0, 0), torch.zeros(0, 0)
        left, right = (sketch.flatten(0, 1) for sketch in found)
        return left[left.abs().sum(1) > 0], right[right.abs().sum(1) > 0]


def _norms(trace: Trace, kind: Compared, row: int) -> Tensor:
    recorded = trace.arrays.get(f"{kind}/norm")
    return recorded[row] if recorded is not None else torch.linalg.vector_norm(sketches(trace, kind)[row], dim=-1)
