"""Activations within a budget of device memory: blocks keep them, move them to host memory or compute them again.

Which, is decided from what was measured: each block's bytes and time, and the rate of copies. The first pass moves to
host memory what goes beyond the budget, the next ones compute again what can be, so that the budget holds from the
first on. Where all fits, nothing is done.
"""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any, get_args

import torch
import torch.distributed as dist
from torch import Tensor, nn

from trainparity.training.activation_checkpointing import Recomputed
from trainparity.training.activation_plan import BlockCost, Treatment, choose, most_saved_again
from trainparity.training.block_measures import BlockMeasures, InputsWatch, bytes_per_s
from trainparity.training.saved_tensors import SavedTensors

_PASSES = 3
"""Forward passes that are measured."""

_LARGER = 1.05
"""Times the bytes that blocks were given when they were measured: then a batch is another one, to be measured."""


class ActivationBudget:
    """The blocks of a model, whose saved tensors it keeps within a budget.

    The method `forward` of each is replaced, not the module, so parameters keep their names. The training is the same,
    see `Recomputed` for passes that are made again. Ranks decide alike: a block may hold a message between them.
    """

    def __init__(self, blocks: Sequence[nn.Module], budget: int, device: torch.device, name: str = "") -> None:
        """Take over the blocks; with a name, what is decided is said on standard error."""
        self._saved, self._device, self._name = SavedTensors(device, budget), device, name
        self._budget = budget
        self._recomputed = [Recomputed(block) for block in blocks]
        self.treatments: list[Treatment] = ["keep"] * len(blocks)
        self._inputs = InputsWatch()
        self._costs: list[BlockCost] = []
        self._now = BlockMeasures(len(blocks), device)
        self._begin()
        for number, block in enumerate(blocks):
            block.forward = partial(self._forward, number, block, block.forward)

    @property
    def decided(self) -> bool:
        """Whether enough has been measured, and each block's treatment stands."""
        return bool(self._costs)

    @property
    def peak(self) -> int:
        """The most bytes of saved tensors that were on the device, without those of a block that is computed again."""
        return self._saved.peak

    @property
    def chosen(self) -> dict[Treatment, int]:
        """How many blocks are treated in each way."""
        return {treatment: self.treatments.count(treatment) for treatment in get_args(Treatment)}

    @contextmanager
    def forward_pass(self) -> Iterator[None]:
        """Around each forward pass: decide what is known by now."""
        if not self.decided:
            self._explore()
        self._now = BlockMeasures(len(self.treatments), self._device)
        yield
        if not self.decided:
            self._inputs.look()
            self._inputs.close()
            self._passes.append(self._now)
        elif self._now.given > _LARGER * self._given and not dist.is_initialized():
            self._begin()  # where there are ranks, all would have to begin anew

    def _begin(self) -> None:
        """Measure from now on."""
        self._passes: list[BlockMeasures] = []
        self._costs, self._saved.reserve = [], 0

    def _explore(self) -> None:
        """Have the first pass save everything, what goes beyond the budget in host memory; then time the blocks."""
        if not self._passes:
            self.treatments = ["keep"] * len(self.treatments)
            return
        if len(self._passes) == 1:
            changed = [float(number in self._inputs.changed) for number in range(len(self.treatments))]
            *self._fixed, total = _agreed([*changed, float(sum(self._passes[0].saved))], self._device)
            if total <= self._budget:
                self._decide()
            else:
                self.treatments = ["keep" if fixed else "recompute" for fixed in self._fixed]
        if len(self._passes) == _PASSES:
            self._decide()

    def _forward(
        self, number: int, block: nn.Module, forward: Callable[..., Any], *inputs: Any, **keywords: Any
    ) -> Any:
        if not torch.is_grad_enabled():
            return forward(*inputs, **keywords)
        self._now.give((inputs, keywords))
        if not self.decided and not self._passes:
            self._inputs.see(number, (inputs, keywords))
        treatment = self.treatments[number]
        call = partial(self._recomputed[number], forward) if treatment == "recompute" else forward
        with (
            nullcontext() if self.decided else self._now.measuring(number, self._saved),
            self._saved.saving(block, to_host=treatment == "offload"),
        ):
            return call(*inputs, **keywords)

    def _decide(self) -> None:
        first, *others = self._passes
        self._given = max(one.given for one in self._passes)
        inputs = [max(each) for each in zip(*(one.saved for one in others or [first]), strict=True)]
        seconds = [min(each) for each in zip(*(one.seconds() for one in self._passes), strict=True)]
        saved = _agreed([*map(float, first.saved)], self._device)
        remain = _agreed([*map(float, inputs)], self._device)
        *seconds, per_byte = _agreed([*seconds, 1 / bytes_per_s(self._device)], self._device)
        self._costs = [
            BlockCost(int(saves), int(remains), takes, not fixed)
            for saves, remains, takes, fixed in zip(saved, remain, seconds, self._fixed, strict=True)
        ]
        self.treatments = choose(self._costs, self._budget, 1 / per_byte, beside=self._device.type == "cuda")
        self._saved.reserve = most_saved_again(self._costs, self.treatments)
        if self._name:
            print(f"{self._name}: {self._decision(1 / per_byte)}", file=sys.stderr)

    def _decision(self, rate: float) -> str:
        total, passes = sum(cost.saved for cost in self._costs), sum(cost.seconds for cost in self._costs)
        of = self.chosen
        return (
            f"{len(self._costs)} blocks save {total / 2**20:,.0f} MiB, of which {self._budget / 2**20:,.0f} may stay: "
            f"{of['keep']} keep them, {of['offload']} move them to host memory, {of['recompute']} compute them again "
            f"({passes * 1e3:.3g} ms forward, copies {rate / 1e9:.3g} GB/s)"
        )


def _agreed(numbers: list[float], device: torch.device) -> list[float]:
    """Return the largest of each number over ranks."""
    if not dist.is_initialized():
        return numbers
    values: Tensor = torch.tensor(numbers, dtype=torch.float64, device=device)
    dist.all_reduce(values, op=dist.ReduceOp.MAX)
    return values.tolist()
