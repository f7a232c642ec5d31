"""Causes of a gradient that differs though weights and samples are the same."""

import torch
from torch import Tensor

from trainparity.parity.causes.finding import Evidence, Finding, some
from trainparity.parity.difference import Difference, combine, fit
from trainparity.parity.recording.trace import Trace


def gradients_not_zeroed(difference: Difference) -> Finding | None:
    """Gradients held before the first backward pass of a step, or none held before a later one."""
    held = difference.pair("rank/held")
    if difference.stage != "gradient" or held is None:
        return None
    left, right = held
    if not (left.numel() and right.numel()):
        return None
    evidence: Evidence = {"norm_held_before_each_pass": [_numbers(left[0]), _numbers(right[0])]}
    before = [float(side[:, 0].amax()) for side in held]
    if (before[0] > 0) != (before[1] > 0):
        return Finding(
            "gradients-not-zeroed",
            f"step {difference.step} begins with a gradient of norm {max(before):.3g} left from the step before",
            "call optimizer.zero_grad() once in every optimizer step, before its first backward",
            evidence,
        )
    early = [_zeroed_between(trace, difference.row) for trace in (difference.left, difference.right)]
    if early[0] != early[1]:
        return Finding(
            "gradients-not-zeroed",
            f"at step {difference.step} the gradients of earlier micro-batches are thrown away before the last one",
            "call optimizer.zero_grad() after the optimizer's step, not between micro-batches",
            evidence,
        )
    return None


def _zeroed_between(trace: Trace, row: int) -> bool:
    """Tell whether the gradient applied is the last micro-batch's alone, though there were several."""
    count = int(trace.arrays["rank/backwards"][row].amax())
    if count < 2 or not (trace.arrays["rank/held"][row][:, 1:count] == 0).any():
        return False
    last = trace.arrays["rank/micro"][row][:, count - 1].mean(0)
    return fit(last, trace.arrays["rank/total"][row][0])[1] < 1e-3


def grad_scaler(difference: Difference) -> Finding | None:
    """The loss scale was still in the gradients when they were clipped, or when they were applied."""
    clipped, left_in = difference.numbers("scale/clipped"), difference.numbers("scale/left")
    scale = max(difference.numbers("scale/value"))
    if clipped[0] == clipped[1] and left_in[0] == left_in[1]:
        return None
    evidence: Evidence = {"loss_scale": scale, "gradient_ratio": difference.scale[0]}
    if clipped[0] != clipped[1]:
        return Finding(
            "grad-scaler",
            f"gradients were clipped while they carried the loss scale {scale:g}",
            "call scaler.unscale_(optimizer) before clipping",
            evidence,
        )
    return Finding(
        "grad-scaler",
        f"the update used gradients that carried the loss scale {scale:g}",
        "call scaler.step(optimizer), which unscales them, instead of optimizer.step()",
        evidence,
    )


def clipped_too_early(difference: Difference) -> Finding | None:
    """Gradients clipped before the last micro-batch's backward, in one run only."""
    early = [_clipped_early(trace, difference.row) for trace in (difference.left, difference.right)]
    if difference.stage is None or early[0] == early[1]:
        return None
    calls, passes = difference.numbers("clip/calls"), difference.numbers("clip/backwards")
    return Finding(
        "clipping",
        f"gradients were clipped {max(calls):g} times, first after micro-batch {max(1, min(p for p in passes if p)):g}",
        "clip once, after the last micro-batch's backward",
        {"clip_calls": list(calls), "backward_passes_before_the_first": list(passes)},
    )


def _clipped_early(trace: Trace, row: int) -> bool:
    if "clip/calls" not in trace.arrays or not trace.arrays["clip/calls"][row]:
        return False
    return int(trace.arrays["clip/backwards"][row]) < int(trace.arrays["rank/backwards"][row].amax())


def clipped_apart(difference: Difference) -> Finding | None:
    """Shards that each rank scales by its own number after backward: clipped by local norms."""
    apart = []
    for trace in (difference.left, difference.right):
        pairs = zip(trace.arrays["rank/after"][difference.row], trace.arrays["rank/total"][difference.row], strict=True)
        factors = [fit(after, total) for after, total in pairs if after.abs().sum() > 0]
        kept = [factor for factor, rest in factors if rest < 1e-3]
        apart.append(kept if len(kept) == trace.layout.world_size and max(kept) - min(kept) > 1e-3 * max(kept) else [])
    if bool(apart[0]) == bool(apart[1]):
        return None
    return Finding(
        "clipping",
        f"each rank scales its shard of the gradient by its own number: {_numbers(torch.tensor(max(apart, key=len)))}",
        "clip by the norm of the whole gradient: torch.nn.utils.clip_grad_norm_ on the sharded parameters",
        {"kept_by_rank": max(apart, key=len)},
    )


def overflow(difference: Difference) -> Finding | None:
    """Gradients that are not finite in one run only."""
    finite = [bool(norms.isfinite().all()) for norms in difference.norms("gradient")]
    if finite[0] == finite[1]:
        return None
    scale = difference.numbers("scale/value")
    return Finding(
        "precision",
        f"gradients overflowed at step {difference.step} in one run only"
        + (", and the loss scaler skipped the step" if max(scale) else ""),
        "use bf16, or let the loss scale come down before the runs are compared",
        {"finite": [float(f) for f in finite], "loss_scale": list(scale)},
    )


def frozen_parameter(difference: Difference) -> Finding | None:
    """Parameters that have a gradient in one run only, while the rest is right."""
    if difference.stage != "gradient":
        return None
    left, right = difference.norms("gradient")
    names = list(difference.left.layout.parameters)
    odd = [names[index] for index in ((left > 0) != (right > 0)).nonzero().flatten().tolist()]
    if not odd:
        return None
    others = [name for name in difference.beyond["gradient"] if name in names and name not in odd]
    if others or len(odd) == len(names):
        return None
    frozen = set(difference.left.layout.frozen) ^ set(difference.right.layout.frozen)
    how = "requires_grad is off" if frozen else "no gradient reaches it"
    return Finding(
        "frozen-parameter",
        f"{some(odd)} has a gradient in one run only ({how})",
        "leave requires_grad on, and do not detach what the parameter computes",
        {"parameters": odd, "requires_grad_differs": sorted(frozen)},
    )


def scaled(difference: Difference) -> Finding | None:
    """The whole gradient is the reference's times one number: a missing or another division of the loss."""
    factor, rest = difference.scale
    if difference.stage != "gradient" or rest > _tolerance(difference) or abs(factor - 1) <= _tolerance(difference):
        return None
    changed = [_changed_after_backward(trace, difference.row) for trace in (difference.left, difference.right)]
    left, right = difference.left, difference.right
    evidence: Evidence = {
        "factor": factor,
        "left_over": rest,
        "cosine": float((1 - min(rest, 1) ** 2) ** 0.5) * (1 if factor > 0 else -1),
        "backward_passes": [float(t.arrays["rank/backwards"][difference.row].amax()) for t in (left, right)],
        "ranks": [float(t.layout.world_size) for t in (left, right)],
        "scaled_after_backward": changed,
    }
    if _unexplained_rescaling(difference, changed):
        return None
    return Finding(
        "loss-normalisation",
        f"the gradient is {factor:.6g} times the reference's in every parameter{_guess(difference, factor)}",
        "divide the summed loss once by the number of samples (or tokens) of the whole global batch",
        evidence,
    )


def _tolerance(difference: Difference) -> float:
    units = [trace.layout.unit_roundoff for trace in (difference.left, difference.right)]
    return difference.tolerance if difference.same_precision else max(difference.tolerance, 32 * max(units))


def _changed_after_backward(trace: Trace, row: int) -> float:
    """Return the factor between the mean over ranks of what backward made and what was recorded; 0: not known."""
    micro = trace.arrays["rank/micro"][row]
    made = micro.sum(1).mean(0) if micro.numel() else torch.zeros(0)
    total = trace.arrays["rank/total"][row][0]
    if not made.numel() or not made.abs().sum() or not total.abs().sum():
        return 0.0
    factor, rest = fit(made, total)
    return factor if rest < 1e-3 else 0.0


def _unexplained_rescaling(difference: Difference, changed: list[float]) -> bool:
    """Tell whether code of the loop's own scaled the gradients by a number that no count explains."""
    ratio = changed[1] / changed[0] if all(changed) else 1.0
    if abs(ratio - 1) < 1e-3 or max(difference.numbers("scale/value")):
        return False
    return not _guess(difference, ratio)


def _guess(difference: Difference, factor: float) -> str:
    """Name the count that a factor is equal to, if there is one."""
    rows = (difference.left, difference.right)
    ranks = [trace.layout.world_size for trace in rows]
    passes = [int(trace.arrays["rank/backwards"][difference.row].amax()) for trace in rows]
    samples = max(difference.numbers("num_samples"))
    counts = {
        "the number of micro-batches": max(passes),
        "the number of ranks": max(ranks),
        "ranks times micro-batches": max(ranks) * max(passes),
        "the number of samples": int(samples),
        "samples of a micro-batch": int(samples) // max(1, max(passes) * max(ranks)),
    }
    for name, count in counts.items():
        for sign, text in ((1, f": {name}"), (-1, f": one over {name}")):
            if count > 1 and abs(factor / count**sign - 1) < 1e-2:
                return text
    return ""


def weighted_otherwise(difference: Difference) -> Finding | None:
    """Both gradients are sums of the same micro-batch gradients, weighted otherwise: a mean of means.

    The weights come from least squares on the micro-batches' sketches; the reference's gradient must be such a
    sum but for rounding, which no other fault leaves it.
    """
    if difference.stage != "gradient":
        return None
    totals = [trace.arrays["rank/total"][difference.row][0] for trace in (difference.left, difference.right)]
    finer = max(difference.micro(), key=len)  # the run that cut the batch smaller
    (left, left_over), (right, right_over) = (combine(finer, total) for total in totals)
    tolerance = max(_tolerance(difference), 1e-5)
    if len(finer) < 2 or left_over > tolerance or right_over > tolerance:
        return None
    ratio = _ratios(left, right)
    if ratio is None or float(ratio.amax() - ratio.amin()) <= tolerance:
        return None
    return Finding(
        "loss-normalisation",
        f"micro-batches weigh {float(ratio.amin()):.3g} to {float(ratio.amax()):.3g} times what they weigh in the "
        "reference: a mean of means over micro-batches of unequal size",
        "sum the losses of all micro-batches and ranks and divide once by the global count of samples (or tokens)",
        {
            "weights_of_the_reference": left.tolist(),
            "weights_of_the_other": right.tolist(),
            "left_over": max(left_over, right_over),
        },
    )


def _ratios(left: Tensor, right: Tensor) -> Tensor | None:
    """Return right / left; None if a micro-batch is missing from either sum, which is no matter of weights."""
    smallest = 1e-4 * max(float(left.abs().amax()), float(right.abs().amax()))
    if float(left.abs().amin()) < smallest or float(right.abs().amin()) < smallest:
        return None
    return right / left


def batchnorm_statistics(difference: Difference) -> Finding | None:
    """BatchNorm saw batches of another size, and its output is the first activation that is off."""
    rows = [_rows_per_pass(trace, difference.row) for trace in (difference.left, difference.right)]
    kinds = difference.left.layout.modules
    norms = [name for name, kind in kinds.items() if "BatchNorm" in kind]
    first = difference.first_activation
    if difference.stage != "gradient" or not norms or rows[0] == rows[1]:
        return None
    if first is not None and "BatchNorm" not in kinds.get(first, ""):
        return None
    if first is None and not any(name.rpartition(".")[0] in norms for name in difference.beyond["buffer"]):
        return None
    return Finding(
        "batchnorm-statistics",
        f"{first or norms[0]} normalises over {_brief(rows[0])} samples at a time in the reference, "
        f"over {_brief(rows[1])} in the other run",
        "use SyncBatchNorm over ranks, or GroupNorm, or compare runs with the same micro-batches",
        {"modules": norms, "samples_of_each_pass": [str(rows[0]), str(rows[1])], "first_activation": first or ""},
    )


def _rows_per_pass(trace: Trace, row: int) -> list[list[int]]:
    """Return how many samples one normalisation sees: by pass and rank, over all ranks for SyncBatchNorm."""
    rows = trace.arrays["rank/rows"][row]
    if any(kind == "SyncBatchNorm" for kind in trace.layout.modules.values()):
        rows = rows.sum(0, keepdim=True)
    return sorted([value for value in rank if value] for rank in rows.tolist())


def _brief(rows: list[list[int]]) -> str:
    sizes = sorted({value for rank in rows for value in rank})
    return " or ".join(str(size) for size in sizes) or "unknown"


def randomness(difference: Difference) -> Finding | None:
    """The forward pass drew random numbers, and other ones: dropout, noise, augmentation."""
    drew, states = difference.pair("rank/drew"), difference.pair("rank/random_state")
    first = difference.first_activation
    if difference.stage != "gradient" or drew is None or states is None or first is None:
        return None
    rows = [_rows_per_pass(trace, difference.row) for trace in (difference.left, difference.right)]
    evidence: Evidence = {
        "first_activation": first,
        "passes_that_drew": [float(d.sum()) for d in drew],
        "samples_of_each_pass": [str(r) for r in rows],
    }
    if any(d.any() for d in drew):
        same_state = int(states[0][0]) == int(states[1][0])
        if same_state and rows[0] == rows[1] and bool(drew[0].any()) == bool(drew[1].any()):
            return None  # equal masks: something else is off
        evidence["same_generator_state"] = same_state
        evidence["ranks_share_a_state"] = bool(len(states[1]) > 1 and (states[1] == states[1][0]).all())
        shared = evidence["ranks_share_a_state"]
        what = "all ranks draw the same random numbers" if shared else "the forward pass draws other random numbers"
        advice = "seed each rank apart, and " if shared else ""
        return Finding(
            "randomness",
            f"{what}; the first output that differs is {first}'s",
            f"{advice}turn dropout off for the comparison, or draw it as a function of seed, epoch and sample",
            evidence,
        )
    identified = all(t.layout.settings.get("samples") == "identity" for t in (difference.left, difference.right))
    if first == "(input)" and identified:
        return Finding(
            "randomness",
            "the same samples reach the model with other values: augmentation or noise was drawn otherwise",
            "draw noise and augmentation as a function of seed, epoch and sample",
            evidence,
        )
    return None


def precision(difference: Difference) -> Finding | None:
    """The runs compute in other number formats, and are apart by no more than the coarser one rounds."""
    left, right = difference.left.layout, difference.right.layout
    unit = max(left.unit_roundoff, right.unit_roundoff)
    if difference.stage != "gradient" or difference.same_precision or difference.distance("gradient") > 128 * unit:
        return None
    return Finding(
        "precision",
        f"{left.precision} against {right.precision}: apart by {difference.distance('gradient'):.2g}, as that rounds",
        "compare runs of one precision, and judge a change of precision by whole runs over seeds",
        {"unit_roundoff": [left.unit_roundoff, right.unit_roundoff], "distance": difference.distance("gradient")},
    )


def _numbers(values: Tensor) -> str:
    return ", ".join(f"{value:.3g}" for value in values.tolist())
