"""Whether twins are runs of the reference's training: of others the distance is no rounding, and excuses anything."""

from collections.abc import Callable, Sequence
from typing import Literal

import torch
from torch import Tensor

from trainparity.parity.noise.distance import Judged, distances, norms, sizes, sketches
from trainparity.parity.noise.normalisation import amplified, decomposed
from trainparity.parity.noise.rounding import rounding
from trainparity.parity.recording.code import edited
from trainparity.parity.recording.trace import Layout, Trace
from trainparity.records.names import some
from trainparity.records.numbers import exact


def seen_as(reference: Trace, twin: Trace) -> Trace:
    """Return a twin with what the reference's modules return, in its order; what the twin never saw is zero.

    Another path through a model, as past an expert that no sample is given to, is none of another run.
    """
    ours, theirs = reference.layout.activations, twin.layout.activations
    if ours == theirs:
        return twin
    arrays = dict(twin.arrays)
    for key in ("activation/sketch", "activation/numbers", "activation_gradient/sketch"):
        seen = arrays[key]
        arrays[key] = seen.new_zeros(len(seen), len(ours), *seen.shape[2:])
        for column, name in enumerate(ours):
            if name in theirs:
                arrays[key][:, column] = seen[:, theirs.index(name)]
    return Trace(twin.layout.model_copy(update={"activations": ours}), arrays)


def of_another_run(reference: Trace, twins: Sequence[Trace]) -> str | None:
    """Name a twin that ran otherwise than the reference, starts elsewhere or parts from it as rounding does not."""
    explained = rounding(reference, "gradient")[:, :-1]

    def said(twin: Trace, others: Sequence[Trace]) -> str | None:
        other = _ran_otherwise(reference, twin) or _elsewhere(reference, twin)
        return other or _parts(reference, twin, others, "gradient", explained)

    return _first_said(twins, said)


def _first_said(twins: Sequence[Trace], say: Callable[[Trace, Sequence[Trace]], str | None]) -> str | None:
    """Return the first thing that is said of a twin beside the others, with its name."""
    for number, twin in enumerate(twins, 1):
        if found := say(twin, [other for other in twins if other is not twin]):
            return f"twin {twin.layout.twin or number} {found}"
    return None


def _ran_otherwise(reference: Trace, twin: Trace) -> str | None:
    """Name a fact that a twin does not share."""
    for key in _SHARED:
        ours, theirs = getattr(reference.layout, key), getattr(twin.layout, key)
        if ours != theirs:
            what = key.replace("_", " ")
            which = f"{what} {theirs}, not {ours}" if isinstance(ours, str | int) else f"other {what}"
            return f"ran with {which}: it is no twin of this run"
    if changed := edited(reference.layout.code, twin.layout.code):
        return f"ran other code, with another {some(changed)}: it is no twin of this run. Record {_AGAIN}"
    for key in sorted(name for name in reference.arrays if name.startswith("setting/")):
        ours, theirs = reference.arrays[key], twin.arrays.get(key)
        if theirs is None or not torch.allclose(ours, theirs, rtol=_OF_AN_OPTION, atol=0.0, equal_nan=True):
            return f"ran with another {key.removeprefix('setting/')} of the optimizer: it is no twin of this run"
    for key, what in (("held", "an optimizer that holds other parameters"), ("frozen", "other frozen parameters")):
        if not torch.equal(reference.arrays[key], twin.arrays[key]):
            return f"ran with {what}: it is no twin of this run"
    return None


_AGAIN = "the reference and its twins again, from one state of the code and the data"

_SHARED = ("world_size", "precision", "optimizer", "choices", "modules", "tied")
"""Facts of a run that a twin shares with its reference."""

_OF_AN_OPTION = 1e-3
"""Part of itself by which an option may differ where an optimizer computes it from the gradients."""


def _elsewhere(reference: Trace, twin: Trace) -> str | None:
    """Say that a twin does not start where the reference does, within what it was moved by.

    Of parameters that another optimizer moves nothing is said: it may have made its step before.
    """
    layout, still = reference.layout, _still(reference)
    rows = _begins(layout)
    held = reference.arrays["held"][rows]
    unit = max(layout.unit_roundoff, twin.layout.unit_roundoff)
    apart = distances(reference, twin, "start")[rows, :-1]
    # A frozen mask may hold infinities, of which no distance is known.
    elsewhere = (held & ~(apart <= _MOVED * unit)) | (still & (apart > max(_MOVED * unit, _GROWN)))
    if not bool(elsewhere.any()):
        return None
    return (
        "starts from other weights: it is no twin of this run. Give the script a seed for the first weights, and let "
        "no twin resume what another run has saved"
    )


def _begins(layout: Layout) -> list[int]:
    """Return the rows of the steps that windows begin with, where these are traced."""
    window = layout.window or layout.steps[-1] + 1
    return [row for row, step in enumerate(layout.steps) if step % window == 0]


def _still(trace: Trace) -> Tensor:
    """Return the parameters that start all steps from the same numbers, as frozen ones do: bool [P]."""
    starts = sketches(trace, "start")
    return ((starts == starts[:1]) | (starts.isnan() & starts[:1].isnan())).all(2).all(0)


_MOVED = 8
"""Unit roundoffs that a twin may start away from the reference; it is moved by one, and rounded to its format."""

_GROWN = 1e-3
"""Distance of weights that stand still: an optimizer that held them before may have let their rounding grow so far."""


def _parts(
    reference: Trace, twin: Trace, others: Sequence[Trace], kind: Literal["gradient", "update"], explained: Tensor
) -> str | None:
    """Say in which step a twin's gradient or update parts from the reference's in every parameter, unlike rounding.

    Where rounding decides something, as the side of a kink of ReLU, some gradients part a thousandfold and others, as
    those of the last layer, do not. From there on twins lie apart as the training makes it, and nothing is said.

    Args:
        reference: What it is a twin of.
        twin: The twin.
        others: The other twins.
        kind: What is looked at.
        explained: How far it may be apart: float64 [T, P].
    """
    layout, begins = reference.layout, _begins(reference.layout)
    growth, judged = _growth(reference, twin, others, kind, explained), _judged(reference)
    for row, step in enumerate(layout.steps):
        if row not in begins and (row == 0 or step - layout.steps[row - 1] > 1):
            continue
        if _decided_elsewhere(reference, twin, row):
            return None
        found = growth[row][judged[row]]
        alone = not others and (kind == "update" or row in begins)
        limit = _ALONE if alone or (kind == "update" and len(found) == 1) else _AT_ONCE
        if not bool((found > (limit if kind == "update" else _AT_ONCE)).any()):
            continue
        if not bool((found > limit).all()):
            return None
        if kind == "gradient" and row not in begins and _at_kink_of_loss(reference, twin, row):
            return None
        apart = exact(float(distances(reference, twin, kind)[row, -1]), 2)
        agree = " of gradients that agree," if kind == "update" else ""
        return (
            f"parts from the reference in step {step}, by {apart} in the {kind}, in every parameter at once,{agree} "
            f"which rounding does not do: it is no twin of this run. Record {_AGAIN}, with one seed"
        )
    return None


def of_another_update(reference: Trace, twins: Sequence[Trace], gradient: Tensor) -> str | None:
    """Name a twin whose updates part from the reference's in every parameter at once, though its gradients do not.

    Args:
        reference: What they are twins of.
        twins: All of them.
        gradient: The noise floor of gradients: float64 [T, tensors + 1].
    """
    if decomposed(reference.layout).any():  # rounding inside of its iteration makes jumps
        return None
    explained = torch.maximum(rounding(reference, "update"), amplified(reference, "update", gradient))[:, :-1]
    explained = explained.clamp(min=_OF_UPDATES * reference.layout.unit_roundoff)
    return _first_said(twins, lambda twin, others: _parts(reference, twin, others, "update", explained))


_OF_UPDATES = 8
"""Unit roundoffs by which updates may be apart for what an optimizer computes of the whole gradient, as a norm."""


def _growth(reference: Trace, twin: Trace, others: Sequence[Trace], kind: Judged, explained: Tensor) -> Tensor:
    """Return how many times further a twin's gradients, or updates, are away than is explained: float64 [T, P].

    One rounding explains it, the distance of the two of all runs that are nearest to one another, or of the twin a step
    before, times what its weights have parted since.
    """
    layout, runs = reference.layout, [reference, twin, *others]
    pairs = [distances(one, other, kind)[:, :-1] for place, one in enumerate(runs) for other in runs[:place]]
    if others:
        explained = torch.maximum(explained, torch.stack(pairs).amin(0))
    start = distances(reference, twin, "start").clamp(min=layout.unit_roundoff)
    before, moved = pairs[0].roll(1, 0), (start / start.roll(1, 0)).amax(1, keepdim=True)
    begins = _begins(layout)
    before[begins], moved[begins] = 0.0, 1.0
    return pairs[0] / torch.maximum(explained, before) / moved.clamp(min=1)


def _judged(reference: Trace) -> Tensor:
    """Return which parameters tell in a step: those held, with a gradient, and too many numbers for chance: [T, P]."""
    sized = sizes(reference.layout) >= FEW
    return sized & reference.arrays["held"] & (norms(reference, "gradient") > 0)


def _decided_elsewhere(reference: Trace, twin: Trace, row: int) -> bool:
    """Tell whether a line search, or a model that makes the inputs or the loss, may part all parameters at once."""
    searched = [trace.arrays["closure/evaluations"][row] for trace in (reference, twin)]
    return bool(searched[0] != searched[1]) or any(
        bool(reference.arrays[name][row].any()) for name in ("made_elsewhere", "judged_elsewhere")
    )


def _at_kink_of_loss(reference: Trace, twin: Trace, row: int) -> bool:
    """Tell whether gradients turn for a kink of the loss, as of a distance: it and all modules' outputs agree there.

    What comes back to the modules turns as well. Another factor, or term, moves the loss or gradients along themselves.
    From equal weights hardly any number lies so near to a kink, and noise that a loop adds would look the same.
    """
    twin = seen_as(reference, twin)
    losses = torch.stack([trace.arrays["rank/loss"][row].mean().double() for trace in (reference, twin)])
    passed, back = (
        float(distances(reference, twin, kind)[row].max()) for kind in ("activation", "activation_gradient")
    )
    rounded = _AT_ONCE * max(float(distances(reference, twin, "start")[row, -1]), reference.layout.unit_roundoff)
    if not (passed <= rounded and bool((losses[1] - losses[0]).abs() <= rounded * losses[0].abs())):
        return False
    whole, other = (sketches(trace, "gradient")[row].flatten() for trace in (reference, twin))
    across = bool(torch.cosine_similarity(other - whole, whole, dim=0).abs() <= _ACROSS)
    part = float(torch.linalg.vector_norm(other - whole) / torch.linalg.vector_norm(whole))
    return across and part <= min(_OF_A_KINK, CARRIED * back)


_ACROSS, _OF_A_KINK = 0.5, 0.1
"""Cosine of the angle between a gradient and what a kink adds to it, and the part of it that this may be, at most."""

CARRIED = 4
"""Times that gradients of parameters are further apart than what comes back to modules; 1.4 were seen."""


FEW = 8
"""Numbers from which on the length of a tensor's distance is no matter of chance."""

_AT_ONCE = 100
"""Times that all parameters of a right twin do not part at once; 9 were seen."""

_ALONE = 1e4
"""The same for the first step of a single twin, in roundings; 577 were seen, of sums over many positions.

And for the update of a single parameter: one number of a state that is kept in bf16 may round the other way.
"""
