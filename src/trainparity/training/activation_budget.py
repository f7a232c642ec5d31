"""Activations within a budget of device memory: blocks keep them, move them to host memory or compute them again.

Which, is decided from what was measured: each block's bytes and time, and the rate of copies. The first pass moves to
host memory what goes beyond the budget, the next ones compute all again, so that the budget holds from the first on.
"""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from time import perf_counter
from typing import Any, Literal, NamedTuple, get_args

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from trainparity.training.activation_checkpointing import Recomputed
from trainparity.training.saved_tensors import SavedTensors

Treatment = Literal["keep", "offload", "recompute"]


_PASSES = 3
"""Forward passes that are measured."""


class BlockCost(NamedTuple):
    """What a block of the model was measured to take."""

    saved: int
    """Bytes that its forward pass saves for backward."""
    inputs: int
    """Bytes of its inputs, which remain if it is computed again."""
    seconds: float
    """Of its forward pass."""


def choose(costs: Sequence[BlockCost], budget: int, bytes_per_s: float, *, beside: bool) -> list[Treatment]:
    """Return each block's treatment such that the saved bytes fit the budget and a step takes least.

    The first blocks are moved: their copies have the rest of the forward pass, and backward needs them last.

    Args:
        costs: The blocks', in forward order.
        budget: Bytes that may stay on the device.
        bytes_per_s: Of copies, in one direction.
        beside: Whether copies go on beside the computation, as on a GPU.
    """
    # Those that free most in a second are computed again first.
    ranked = sorted(range(len(costs)), key=lambda number: -_freed(costs[number]) / max(costs[number].seconds, 1e-9))
    plans = [_plan(costs, set(ranked[:count]), budget) for count in range(len(costs) + 1)]
    fitting = [plan for plan in plans if plan is not None]  # the first always does: it can move everything
    return min(fitting, key=lambda plan: added_seconds(costs, plan, bytes_per_s, beside=beside))


def _plan(costs: Sequence[BlockCost], recomputed: set[int], budget: int) -> list[Treatment] | None:
    """Move the first blocks that are not computed again until the rest fits; None if it can't."""
    plan: list[Treatment] = ["recompute" if number in recomputed else "keep" for number in range(len(costs))]
    for number in range(len(costs)):
        if _needed(costs, plan) <= budget:
            break
        if plan[number] == "keep":
            plan[number] = "offload"
    return plan if _needed(costs, plan) <= budget else None


def _needed(costs: Sequence[BlockCost], plan: Sequence[Treatment]) -> int:
    """Return the most bytes on the device: after the forward pass, or as backward computes a block again."""
    stays, most = 0, 0
    for cost, treatment in zip(costs, plan, strict=True):
        if treatment == "recompute":
            most = max(most, stays + cost.saved)
        stays += {"keep": cost.saved, "offload": 0, "recompute": cost.inputs}[treatment]
    return max(most, stays)


def added_seconds(costs: Sequence[BlockCost], plan: Sequence[Treatment], bytes_per_s: float, *, beside: bool) -> float:
    """Return what a plan adds to a step: passes made again, and copies as far as nothing hides them."""
    again = sum(cost.seconds for cost in _of(costs, plan, "recompute"))
    copies = sum(cost.saved for cost in _of(costs, plan, "offload")) / bytes_per_s
    if not copies:
        return again
    if not beside:
        return again + 2 * copies
    forward = sum(cost.seconds for cost in costs)
    out_behind = forward - costs[list(plan).index("offload")].seconds
    backward = 2 * forward + again  # its products are twice as many
    return again + max(0.0, copies - out_behind) + max(0.0, copies - backward)


def _of(costs: Sequence[BlockCost], plan: Sequence[Treatment], treatment: Treatment) -> list[BlockCost]:
    return [cost for cost, own in zip(costs, plan, strict=True) if own == treatment]


def _freed(cost: BlockCost) -> int:
    return cost.saved - cost.inputs


class ActivationBudget:
    """The blocks of a model, whose saved tensors it keeps within a budget.

    The method `forward` of each is replaced, not the module, so parameters keep their names. The training is the same,
    see `Recomputed` for passes that are made again.
    """

    def __init__(self, blocks: Sequence[nn.Module], budget: int, device: torch.device, name: str = "") -> None:
        """Take over the blocks; with a name, what is decided is said on standard error."""
        self._saved, self._device, self._name = SavedTensors(device, budget), device, name
        self._budget = budget
        self.treatments: list[Treatment] = ["keep"] * len(blocks)
        self._bytes = [0] * len(blocks)
        self._inputs = [0] * len(blocks)
        self._timers = [_Timer(device) for _ in blocks]
        self._recomputed = [Recomputed(block) for block in blocks]
        self._passes = 0
        self.decided = False
        for number, block in enumerate(blocks):
            block.forward = partial(self._forward, number, block, block.forward)

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
            self._inputs = [0] * len(self._inputs)
            if self._passes < _PASSES:
                self._explore()
            else:
                self._decide()
        yield
        self._passes += 1

    def _forward(
        self, number: int, block: nn.Module, forward: Callable[..., Any], *inputs: Any, **keywords: Any
    ) -> Any:
        if not torch.is_grad_enabled():
            return forward(*inputs, **keywords)
        with nullcontext() if self.decided else self._measured(number, (inputs, keywords)):
            if (treatment := self.treatments[number]) == "recompute":
                return self._recomputed[number](forward, *inputs, **keywords)
            with self._saved.saving(block, to_host=treatment == "offload"):
                return forward(*inputs, **keywords)

    @contextmanager
    def _measured(self, number: int, inputs: Any) -> Iterator[None]:
        """Measure a call of a block; one that is called several times in a pass takes the sum."""
        before = self._saved.total
        with self._timers[number].running():
            yield
        self._inputs[number] += sum(leaf.nbytes for leaf in tree_leaves(inputs) if isinstance(leaf, Tensor))
        if self.treatments[number] != "recompute":
            self._bytes[number] += self._saved.total - before

    def _explore(self) -> None:
        """Have the first pass save everything, what goes beyond the budget in host memory; then time the blocks."""
        self.treatments = ["recompute" if self._passes else "keep"] * len(self.treatments)

    def _decide(self) -> None:
        rate = _bytes_per_s(self._device)
        costs = [
            BlockCost(nbytes, inputs, timer.seconds(self._passes))
            for nbytes, inputs, timer in zip(self._bytes, self._inputs, self._timers, strict=True)
        ]
        self.treatments = choose(costs, self._budget, rate, beside=self._device.type == "cuda")
        again = _of(costs, self.treatments, "recompute")
        self._saved.limit -= max((cost.saved for cost in again), default=0)  # it has no room for what is fetched ahead
        self.decided = True
        if self._name:
            print(f"{self._name}: {self._decision(costs, rate)}", file=sys.stderr)

    def _decision(self, costs: Sequence[BlockCost], rate: float) -> str:
        total, passes = sum(cost.saved for cost in costs), sum(cost.seconds for cost in costs)
        of = self.chosen
        return (
            f"{len(costs)} blocks save {total / 2**20:,.0f} MiB, of which {self._budget / 2**20:,.0f} may stay: "
            f"{of['keep']} keep them, {of['offload']} move them to host memory, {of['recompute']} compute them again "
            f"({passes * 1e3:.3g} ms forward, copies {rate / 1e9:.3g} GB/s)"
        )


class _Timer:
    """How long a block's forward pass takes, by the device's clock."""

    def __init__(self, device: torch.device) -> None:
        self._on_gpu = device.type == "cuda"
        self._marks: list[tuple[Any, Any]] = []

    @contextmanager
    def running(self) -> Iterator[None]:
        begun = self._mark()
        yield
        self._marks.append((begun, self._mark()))

    def _mark(self) -> Any:
        if not self._on_gpu:
            return perf_counter()
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record()
        return event

    def seconds(self, passes: int) -> float:
        """Return the shortest call's, times the calls of a pass: the first wait for kernels to be chosen and loaded."""
        if not self._marks:
            return 0.0
        if self._on_gpu:
            torch.cuda.synchronize()
            shortest = min(float(begun.elapsed_time(end)) for begun, end in self._marks) / 1e3
        else:
            shortest = min(float(end - begun) for begun, end in self._marks)
        return shortest * len(self._marks) / passes


def _bytes_per_s(device: torch.device) -> float:
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
