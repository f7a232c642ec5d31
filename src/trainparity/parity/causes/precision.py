"""Other number formats."""

import torch

from trainparity.parity.causes.finding import Finding, rule
from trainparity.parity.recording.trace import Layout
from trainparity.parity.steps.difference import Difference
from trainparity.records.numbers import exact


@rule(
    "precision",
    "backward",
    proof="gradients overflow in one run only, which scales its loss or computes in a format of few exponents",
    advice="use bf16, or let the loss scale come down before the runs are compared",
)
def overflow(difference: Difference) -> Finding | None:
    """Gradients that are not finite in one run only, by the range of its format: fp32's and bf16's explains none."""
    finite = [bool(norms.isfinite().all()) for norms in difference.norms("gradient")]
    scale, lost = difference.numbers("scale/value"), difference.who(not finite[0])
    if finite[0] == finite[1] or not (any(scale) or _is_narrow(difference.traces[finite.index(False)].layout)):
        return None
    why = f"gradients overflowed at step {difference.step} in {lost} only"
    if of_lost := scale[finite.index(False)]:
        other = scale[finite.index(True)]
        beside = f", that of {difference.who(finite[0])} is {exact(other)}" if other != of_lost else ""
        why += (
            f", and the loss scaler skipped the step: {lost} makes no update there (its loss scale is {exact(of_lost)}"
            f"{beside})"
        )
    return Finding(why, {"finite": [float(f) for f in finite], "loss_scale": list(scale)})


def _is_narrow(layout: Layout) -> bool:
    """Tell whether a run computes in a format of few exponents, as fp16 and fp8."""
    return not layout.precision.startswith(("fp64", "fp32", "tf32", "bf16"))


def rounded_alike(difference: Difference) -> bool:
    """Tell whether formats differ, and gradients by no more than the coarser one rounds."""
    unit = max(trace.layout.unit_roundoff for trace in difference.traces)
    return not difference.same_precision and difference.distance("gradient") <= 128 * unit


def stored_otherwise(difference: Difference) -> bool:
    """Tell whether weights that are trained are stored in other formats."""
    return bool(_other_formats(difference))


def _other_formats(difference: Difference) -> dict[str, tuple[float, float]]:
    """Return the unit roundoff in both runs, by name, of weights that are trained and stored in other formats."""
    left, right = (trace.layout for trace in difference.traces)
    frozen, theirs = difference.named(torch.logical_and(*difference.at("frozen"))), right.stored()
    units = {name: (unit, theirs[name]) for name, unit in left.stored().items() if name not in frozen}
    return {name: both for name, both in units.items() if both[0] != both[1]}


def stored_alike(difference: Difference) -> bool:
    """Tell whether they are, and the step's weights are apart by no more than the coarser one rounds."""
    unit = max(trace.layout.stored_roundoff for trace in difference.traces)
    return stored_otherwise(difference) and difference.distance("start") <= _ROUNDED_ONCE * unit


_ROUNDED_ONCE = 4
"""Roundings by which weights of two formats may be apart: of the first step's, and of a few updates."""


@rule(
    "precision",
    "update",
    proof="weights are stored in other formats, and gradients, learning rate and options agree",
    advice="keep weights in fp32 and let autocast choose the format of products",
    differs=stored_otherwise,
)
def updates_round_otherwise(difference: Difference) -> Finding | None:
    """Updates round to the format that weights are stored in, or are lost in it."""
    found = _other_formats(difference)
    if difference.stage not in ("update", None) or not found:
        return None
    ours, theirs = max(found.values(), key=max)
    return Finding(
        f"weights round to {exact(ours, 2)} of themselves in {difference.runs[0]} and to {exact(theirs, 2)} in "
        f"{difference.runs[1]}, and so do updates; gradients agree",
        {"stored_roundoff": [ours, theirs], "parameters": list(found)},
    )


def _computes_otherwise(difference: Difference) -> bool:
    """Tell whether the runs compute in other formats, of which the reference's floor may hide the finer one."""
    return not difference.same_precision


@rule(
    "precision",
    "forward",
    proof="the formats differ and the distance is what the coarser one rounds",
    advice="compare runs of one precision, and judge a change of precision by whole runs over seeds",
    differs=_computes_otherwise,
)
def other_format(difference: Difference) -> Finding | None:
    """The runs compute in other number formats, and are apart by no more than the coarser one rounds."""
    left, right = difference.left.layout, difference.right.layout
    if difference.stage not in ("gradient", None) or not rounded_alike(difference):
        return None
    distance = difference.distance("gradient")
    apart = f"apart by {exact(distance, 2)}, as that rounds" if distance else "gradients are equal at this step yet"
    return Finding(
        f"{left.precision} against {right.precision}: {apart}",
        {"unit_roundoff": [left.unit_roundoff, right.unit_roundoff], "distance": distance},
    )
