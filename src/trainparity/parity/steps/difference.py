"""Two traces at the first step that is beyond the noise floor: what the search for the cause looks at."""

from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from typing import Literal

from trainparity.parity.noise.distance import ALL, KINDS, Compared, names, times
from trainparity.parity.steps.chained_step import ChainedStep
from trainparity.parity.steps.hidden_passes import passes_part
from trainparity.parity.steps.other_losses import other_loss_of_same_bits
from trainparity.parity.steps.updates import made_otherwise

Stage = Literal["gradient", "update", "buffer"]


class Difference(ChainedStep):
    """A step in which two runs part, and what is off in it."""

    @cached_property
    def beyond(self) -> Mapping[Compared, list[str]]:
        """The tensors beyond the margin at the step, by kind, each in the model's order."""
        kinds: tuple[Compared, ...] = ("start", "activation", *KINDS)
        return {kind: self._beyond(kind) for kind in kinds}

    def _beyond(self, kind: Compared) -> list[str]:
        if kind == "activation":
            return self.chain.forward
        found = self.beyond_margin(kind)
        if kind != "update" or not self.made_otherwise:
            return found
        return [name for name in names(self.left, kind) if name in found or name in self.made_otherwise]

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

    @cached_property
    def passes_part(self) -> bool:
        """Whether the forward pass or the loss differs though the floor of a coarse format may hide it in gradients."""
        return passes_part(self)

    @cached_property
    def other_loss_of_same_bits(self) -> bool:
        """Whether the loss of modules that return the same bits has another value, and its gradient differs."""
        return other_loss_of_same_bits(self)

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
    def first_activation(self) -> str | None:
        """The first module in forward order whose output is off; None if none is, or none was recorded."""
        return next((name for name in self.beyond["activation"] if name != ALL), None)

    def activation_kind(self) -> str:
        """Return the class of the module whose output is the first to be off; empty if there is none."""
        return self.kind_of(self.first_activation or "")
