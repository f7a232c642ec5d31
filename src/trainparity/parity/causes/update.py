"""Causes of an update, or of buffers, that differ though the gradients are the same."""

import torch

from trainparity.parity.causes.finding import Finding, some
from trainparity.parity.difference import Difference
from trainparity.parity.distance import ALL

_SETTING = "setting/"


def schedule(difference: Difference) -> Finding | None:
    """Another learning rate: from the first step on by one factor, or a schedule that runs otherwise."""
    rates = difference.pair("setting/lr")
    if difference.stage != "update" or rates is None or _close(*rates):
        return None
    left, right = (trace.arrays["setting/lr"].amax(1) for trace in (difference.left, difference.right))
    ratios = right / left
    evidence = {"reference": left.tolist()[:20], "other": right.tolist()[:20]}
    if difference.row == 0 and _close(ratios, ratios[:1].expand_as(ratios)):
        return Finding(
            "learning-rate",
            f"the learning rate is {float(ratios[0]):.6g} times the reference's",
            "give both runs one learning rate: with an equal global batch there is nothing to scale",
            {**evidence, "ratio": float(ratios[0])},
        )
    speed = _speed(left, right)
    stepped = f": it moves {speed} times as fast, as if stepped once per rank or micro-batch" if speed else ""
    return Finding(
        "schedule",
        f"the learning rate runs otherwise from step {difference.step} on{stepped}",
        "step the scheduler once in each optimizer step",
        {**evidence, "speed": speed or 0},
    )


def _speed(left: torch.Tensor, right: torch.Tensor) -> int | None:
    """Return k if the other run's schedule is the reference's, k steps at a time."""
    for k in range(2, min(16, len(left) - 1) + 1):
        ahead = left[::k]
        if len(ahead) > 1 and _close(right[: len(ahead)], ahead):
            return k
    return None


def clipping(difference: Difference) -> Finding | None:
    """Equal gradients before clipping, other ones after."""
    if difference.stage != "update":
        return None
    kept = []
    for trace in (difference.left, difference.right):
        before, after = (torch.linalg.vector_norm(trace.arrays[key][difference.row]) for key in _CLIPPED)
        kept.append(float(after / before) if before > 0 else 1.0)
    if abs(kept[0] - kept[1]) <= max(1e-5, difference.tolerance) * max(kept):
        return None
    limits, calls = difference.numbers("clip/max_norm"), difference.numbers("clip/calls")
    return Finding(
        "clipping",
        f"the same gradient is clipped to {kept[0]:.4g} of its norm in the reference, {kept[1]:.4g} in the other run",
        "clip once, after accumulation and reduction, by the norm of the whole gradient and with one limit",
        {"kept": kept, "max_norm": list(limits), "clip_calls": list(calls)},
    )


_CLIPPED = ("gradient/norm", "applied/norm")


def parameters_not_updated(difference: Difference) -> Finding | None:
    """Parameters with a gradient that one run does not move."""
    if difference.stage != "update":
        return None
    moved = [norms > 0 for norms in difference.norms("update")]
    with_gradient = (difference.norms("gradient")[0] > 0) & (difference.norms("gradient")[1] > 0)
    names = list(difference.left.layout.parameters)
    unheld = set(difference.left.layout.unoptimised) ^ set(difference.right.layout.unoptimised)
    rates = difference.pair("setting/lr")
    # A learning rate of zero moves nothing either; that is the schedule's doing.
    at_rest = [
        name not in unheld and rates is not None and float(min(r[i] for r in rates)) == 0
        for i, name in enumerate(names)
    ]
    rows = ((moved[0] != moved[1]) & with_gradient).nonzero().flatten().tolist()
    odd = [names[index] for index in rows if not at_rest[index]]
    if not odd:
        return None
    how = "the optimizer does not hold it" if unheld & set(odd) else "the optimizer holds it but the update is lost"
    return Finding(
        "parameters-not-updated",
        f"{some(odd)} has a gradient and does not move in one run ({how})",
        "make the optimizer after the model is moved, wrapped or sharded, from all its parameters",
        {"parameters": odd, "not_in_the_optimizer": sorted(unheld)},
    )


def optimizer_state(difference: Difference) -> Finding | None:
    """Another optimizer, other settings of it, or other moments and step counts before the update."""
    if difference.stage != "update":
        return None
    left, right = difference.left, difference.right
    advice = "give both runs one optimizer with one set of options, and restore its state with the weights"
    if left.layout.optimizer != right.layout.optimizer:
        what = f"{left.layout.optimizer} against {right.layout.optimizer}"
        return Finding("optimizer-state", what, advice, {"optimizers": [left.layout.optimizer, right.layout.optimizer]})
    settings = sorted({k for trace in (left, right) for k in trace.arrays if k.startswith(_SETTING)})
    odd = [key for key in settings if _differs(difference, key)]
    if odd:
        names = [key.removeprefix(_SETTING) for key in odd]
        values = {n: [float(v.amax()) for v in difference.pair(k) or ()] for n, k in zip(names, odd, strict=True)}
        what = "; ".join(f"{name}: {' against '.join(f'{v:g}' for v in both)}" for name, both in values.items())
        return Finding("optimizer-state", f"other options: {what}", advice, {"options": names})
    norms, steps = difference.pair("state/norm"), difference.numbers("optimizer_step")
    if norms is None:
        return None
    total = [float(torch.linalg.vector_norm(norm)) for norm in norms]
    apart = abs(total[0] - total[1]) > max(1e-3, difference.tolerance) * max(total)
    if not apart and steps[0] == steps[1]:
        return None
    lost = " (one of them has none: lost on resume)" if min(total) == 0 < max(total) else ""
    return Finding(
        "optimizer-state",
        f"before step {difference.step} the optimizer's state differs{lost}",
        advice,
        {"norm_of_the_state": total, "steps_counted": list(steps)},
    )


def buffers_only(difference: Difference) -> Finding | None:
    """Gradients, updates and weights are the same training; only buffers differ."""
    if difference.stage != "buffer":
        return None
    names = [name for name in difference.beyond["buffer"] if name != ALL]
    return Finding(
        "buffers-only",
        f"only buffers differ, first {some(names)}: each rank or micro-batch updates running statistics from its share",
        "nothing for training; for evaluation use SyncBatchNorm, or average the statistics over ranks",
        {"buffers": names, "distance": difference.distance("buffer")},
    )


def _differs(difference: Difference, key: str) -> bool:
    values = difference.pair(key)
    return values is None or not _close(*values)


def _close(left: torch.Tensor, right: torch.Tensor) -> bool:
    return left.shape == right.shape and torch.allclose(left, right, rtol=1e-6, atol=0.0)
