"""Which blocks of a model keep what they save for backward, move it to host memory, or compute it again."""

from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import Literal, NamedTuple

Treatment = Literal["keep", "offload", "recompute"]


class BlockCost(NamedTuple):
    """What a block of the model was measured to take."""

    saved: int
    """Bytes that its forward pass saves for backward."""
    inputs: int
    """Bytes of its inputs, which remain if it is computed again."""
    seconds: float
    """Of its forward pass."""
    again: bool = True
    """Whether it can be computed again: not where its inputs are changed in place."""


def choose(costs: Sequence[BlockCost], budget: int, bytes_per_s: float, *, beside: bool) -> list[Treatment]:
    """Return each block's treatment such that the saved bytes fit the budget and a step takes least.

    The first blocks are moved: their copies have the rest of the forward pass, and backward needs them last. From the
    best plan of that kind on, what is better by the change of one block, or of two, is taken until nothing is.

    Args:
        costs: The blocks', in forward order.
        budget: Bytes that may stay on the device.
        bytes_per_s: Of copies, in one direction.
        beside: Whether copies go on beside the computation, as on a GPU.
    """

    def added(plan: list[Treatment]) -> float:
        return added_seconds(costs, plan, bytes_per_s, beside=beside)

    # Those that free most in a second are computed again first.
    able = [number for number, cost in enumerate(costs) if cost.again]
    ranked = sorted(able, key=lambda number: -_freed(costs[number]) / max(costs[number].seconds, 1e-9))
    plans = [_plan(costs, set(ranked[:count]), budget) for count in range(len(ranked) + 1)]
    fitting = [plan for plan in plans if plan is not None]  # the first always does: it can move everything
    best = min(fitting, key=added)
    while True:
        better = min((plan for plan in _near(costs, best) if _needed(costs, plan) <= budget), key=added, default=best)
        if added(better) >= added(best) * (1 - _NOTHING):
            return best
        best = better


_NOTHING = 1e-6
"""Part of the time by which a plan is no better."""

_MOST_PAIRS = 64
"""Blocks up to which changes of two at a time are tried."""


def _near(costs: Sequence[BlockCost], plan: list[Treatment]) -> Iterator[list[Treatment]]:
    """Yield the plans that treat one block otherwise, and those in which two change places."""
    for number, cost in enumerate(costs):
        for other in _TREATMENTS:
            if other != plan[number] and (cost.again or other != "recompute"):
                yield [*plan[:number], other, *plan[number + 1 :]]
    if len(costs) > _MOST_PAIRS:
        return
    for one, two in combinations(range(len(costs)), 2):
        if plan[one] != plan[two] and costs[one].again and costs[two].again:
            changed = [*plan]
            changed[one], changed[two] = plan[two], plan[one]
            yield changed


_TREATMENTS: tuple[Treatment, ...] = ("keep", "offload", "recompute")


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


def most_saved_again(costs: Sequence[BlockCost], plan: Sequence[Treatment]) -> int:
    """Return the most bytes that a block saves which backward computes again."""
    return max((cost.saved for cost in _of(costs, plan, "recompute")), default=0)


def _of(costs: Sequence[BlockCost], plan: Sequence[Treatment], treatment: Treatment) -> list[BlockCost]:
    return [cost for cost, own in zip(costs, plan, strict=True) if own == treatment]


def _freed(cost: BlockCost) -> int:
    return cost.saved - cost.inputs
