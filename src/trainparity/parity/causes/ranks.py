"""Ranks that do not hold the same parameters."""

from collections.abc import Iterator

import torch
from torch import Tensor

from trainparity.parity.causes.finding import Evidence, Finding, rule
from trainparity.parity.causes.passes import backward_makes_equal, own_alone, see_other_samples
from trainparity.parity.recording.clipping import NO_CLIP
from trainparity.parity.recording.trace import Trace
from trainparity.parity.steps.difference import Difference
from trainparity.records.names import some


@rule(
    "clipping",
    "clipping",
    proof="ranks hold equal gradients and clip them by different norms, or some do not clip",
    advice="clip by the norm of the whole gradient, the same on every rank",
)
def clipped_by_own_norms(difference: Difference) -> Finding | None:
    """Ranks part at clipping: their gradients are equal, the norms that they clip by are not."""
    for side, trace, row in _disagreements(difference):
        norms = trace.arrays["rank/clip_norm"][row]
        without = (norms == NO_CLIP).nonzero().flatten().tolist()
        if 0 < len(without) < len(norms):
            return Finding(
                f"rank {some([str(rank) for rank in without])} of {side} does not clip its gradients, and others do",
                _evidence(side, trace, row) | {"norms_by_rank": norms.tolist()},
            )
        if _gradients_agree(trace, row) and not torch.allclose(norms, norms[0].expand_as(norms), equal_nan=True):
            return Finding(
                f"the ranks of {side} hold equal gradients but clip them by different norms",
                _evidence(side, trace, row) | {"norms_by_rank": norms.tolist()},
            )
    return None


@rule(
    "ranks-disagree",
    "reduction",
    proof="ranks' hashes of the weights differ after the step; whether their gradients did, and what was missing where",
    advice="call the wrapper that averages gradients (not the module inside), and let the last micro-batch's backward "
    "run outside no_sync",
)
def ranks_disagree(difference: Difference) -> Finding | None:
    """Each rank's hash of its gradients (after reduction) and weights: missing or partial all-reduce."""
    for side, trace, row in _disagreements(difference):
        if side == difference.runs[0] and part_on_purpose(difference):
            continue
        evidence = _evidence(side, trace, row)
        missing = trace.arrays["rank/missing"][row]
        partial = difference.named(missing.any(0) & ~missing.all(0))
        apart = _apart_alone(difference, trace, _GRADIENTS, row)
        if partial:
            evidence["on_some_ranks_only"] = partial
            what = f"{some(partial)} got a gradient on some ranks only"
        elif evidence["gradients_agree"]:
            what = "gradients agree, weights do not: the ranks started or stepped apart"
        else:
            which = f" ({_counted(trace, apart)})" if apart else ", or only some of them"
            what = f"gradients are not all-reduced{which}"
        held = _apart_alone(difference, trace, _WEIGHTS, row)
        which = f" ({_counted(trace, held)})" if held else ""
        why = f"the ranks of {side} hold different parameters{which} after step {trace.layout.steps[row]}: {what}"
        return Finding(why, evidence, _ALIKE if evidence["gradients_agree"] and not partial else "")
    return None


def _apart_alone(difference: Difference, trace: Trace, name: str, row: int) -> list[str]:
    """Return the parameters that one run's ranks alone have others of, by the mask of that name."""
    other = difference.right if trace is difference.left else difference.left
    return difference.named((_apart(trace, name) & ~_apart(other, name))[row])


def _apart(trace: Trace, name: str) -> Tensor:
    """Return which parameters ranks have others of, by the mask of that name: bool [T, P]; none without it."""
    nothing = torch.zeros(len(trace.layout.steps), len(trace.layout.parameters), dtype=torch.bool)
    return trace.arrays.get(name, nothing).bool()


_WEIGHTS, _GRADIENTS = "rank/weight_apart", "rank/gradient_apart"


def _counted(trace: Trace, names: list[str]) -> str:
    """Name parameters, or count them where they are all."""
    count = len(trace.layout.parameters)
    return f"all {count}" if len(names) == count else f"{some(names)}: {len(names)} of {count}"


def part_on_purpose(difference: Difference) -> bool:
    """Tell whether the reference's ranks alone part, as those that average weights now and then, over other samples."""
    parted = [bool(_disagree(trace)[difference.row]) for trace in difference.traces]
    return parted == [True, False] and see_other_samples(difference)


_ALIKE = (
    "start and resume all ranks from the same weights and optimizer state, and send what one rank alone updates (ZeRO) "
    "to the others after each step"
)


@rule(
    "ranks-disagree",
    "reduction",
    proof="backward passes are made and no shard gets a gradient",
    advice="let the last micro-batch's backward synchronise: set_requires_gradient_sync(True)",
)
def never_reduced(difference: Difference) -> Finding | None:
    """Gradients that FSDP2 never reduces, so that shards have none."""
    made, missing = difference.pair("rank/backwards"), difference.pair("rank/missing")
    if difference.stage != "gradient" or made is None or missing is None:
        return None
    none = [bool(back.any()) and bool(no.all()) for back, no in zip(made, missing, strict=True)]
    sharded = [not trace.arrays["rank/micro"][difference.row].any() for trace in difference.traces]
    if none[0] == none[1] or not sharded[none.index(True)]:
        return None
    return Finding(
        f"in {difference.who(none[0])} no shard gets a gradient though backward passes are made: it is never reduced",
        {"backward_passes": [float(back.sum()) for back in made]},
    )


@rule(
    "ranks-disagree",
    "reduction",
    proof="the last backward pass of a step adds nothing to any shard",
    advice="let the last micro-batch's backward synchronise: set_requires_gradient_sync(True)",
)
def last_not_reduced(difference: Difference) -> Finding | None:
    """Gradients of the last micro-batch that FSDP2 does not reduce before the update, but in the next step."""
    if difference.stage != "gradient":
        return None
    left_out = [_last_adds_nothing(trace, difference.row) for trace in difference.traces]
    if left_out[0] == left_out[1]:
        return None
    return Finding(
        f"in {difference.who(left_out[0])} the last backward pass of step {difference.step} adds nothing to any shard: "
        "what it makes is not reduced before the update",
        {"run": difference.who(left_out[0])},
    )


def _last_adds_nothing(trace: Trace, row: int) -> bool:
    """Tell whether shards hold before the last of several backward passes just the gradient that is left after it."""
    count = int(trace.arrays["rank/backwards"][row].amax())
    held = trace.arrays["rank/held"][row]
    if not 2 <= count <= held.shape[1] or trace.arrays["rank/micro"][row].any():
        return False
    before, left = held[:, count - 1], trace.arrays["rank/left"][row]
    if left.shape[1] >= count and left[:, count - 1].any():  # what was seen where the pass ended
        return bool(before.any()) and torch.allclose(before, left[:, count - 1], rtol=_EXACT, atol=0.0)
    whole, after = float(before.square().sum()), float(trace.arrays["gradient/norm"][row].square().sum())
    return whole > 0 and abs(whole / after - 1) < _EXACT if after else False


_EXACT = 1e-12
"""How far two sums of the same squares may be apart."""


@rule(
    "ranks-disagree",
    "reduction",
    proof="each rank applies the sum of its own backward passes, and another rank another one",
    advice="call the wrapper that averages gradients (not the module inside), and let the last micro-batch's backward "
    "run outside no_sync",
)
def never_averaged(difference: Difference) -> Finding | None:
    """Gradients that no rank averages, where ranks send each other the weights: each part is one rank's own."""
    if difference.stage != "gradient":
        return None
    own = [own_alone(trace, difference.row) for trace in difference.traces]
    if own[0] == own[1] or not backward_makes_equal(difference):
        return None  # an optimizer may average them inside of its step, and something else be wrong
    off = set(difference.beyond["gradient"])
    if set(difference.left.layout.parameters) - off and set(difference.beyond["update"]) <= off:
        return None  # as it does, then: the others' updates are those of averages
    return Finding(
        f"the gradients of {difference.who(own[0])} are not averaged: each rank applies those that it has made itself",
        {"run": difference.who(own[0])},
    )


def _disagreements(difference: Difference) -> Iterator[tuple[str, Trace, int]]:
    """Yield the run whose ranks alone disagree, with the first such row.

    At the step or before; or later, where gradients disagree at the step, which a learning rate of 0 does not apply.
    """
    row = disagreement(difference.left, difference.right)
    if row is None:
        return
    both = all(bool(_disagree(trace)[row]) for trace in difference.traces)
    for side, trace in zip(difference.runs, difference.traces, strict=True):
        alone = _apart_alone(difference, trace, _WEIGHTS, row) if both else bool(_disagree(trace)[row])
        if alone and (row <= difference.row or not _gradients_agree(trace, difference.row)):
            yield side, trace, row


def _gradients_agree(trace: Trace, row: int) -> bool:
    gradients = trace.arrays["rank/gradient"][row]
    return bool((gradients == gradients[0]).all())


def _evidence(side: str, trace: Trace, row: int) -> Evidence:
    return {
        "run": side,
        "step": trace.layout.steps[row],
        "gradients_agree": _gradients_agree(trace, row),
        "backward_passes_by_rank": trace.arrays["rank/backwards"][row].double().tolist(),
    }


def disagreement(left: Trace, right: Trace) -> int | None:
    """Return the first traced row after which the ranks of one run alone did not hold the same parameters.

    Where those of both do, of the same parameters in the same steps, it is meant: ranks that hold shards of their own,
    or average their weights every so many steps.
    """
    alone = (_disagree(left) != _disagree(right)) | (_apart(left, _WEIGHTS) != _apart(right, _WEIGHTS)).any(1)
    rows = alone.nonzero()
    return int(rows[0]) if len(rows) else None


def agree(trace: Trace) -> bool:
    """Tell whether a run's ranks held the same parameters after each traced step."""
    return not bool(_disagree(trace).any())


def _disagree(trace: Trace) -> Tensor:
    """Return the rows after which a run's ranks did not hold the same parameters, as a mask."""
    digests = trace.arrays["rank/weight"]
    return (digests != digests[:, :1]).any(1)
