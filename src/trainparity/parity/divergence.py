"""A run that diverged: from when on, and where it shows first."""

import torch
from torch import Tensor

from trainparity.parity.recording.names import INPUT, MODEL, OUTPUT
from trainparity.parity.recording.trace import Trace

_CHAIN = (
    ("activation/sketch", "the output of {}"),
    ("loss", "the loss"),
    ("activation_gradient/sketch", "the gradient of the output of {}"),
    ("gradient/norm", "the gradient of {}"),
    ("weight/norm", "the weight {}"),
)
"""Recorded arrays in the order of a step, and how one of their tensors is called."""

_ENDS = {INPUT: "the data", OUTPUT: "the model", MODEL: "the model"}


def divergence(trace: Trace) -> str | None:
    """Say of a run whose weights became infinite or not a number when they did, and what was so first; None if none."""
    weights = _first(trace.arrays["weight/norm"])
    if weights is None:
        return None
    found = [(*place, text) for key, text in _CHAIN if (place := _first(_seen(trace, key)))]
    row, column, text = min(found, key=lambda place: place[0])
    names = trace.layout.activations if "output" in text else list(trace.layout.parameters)
    steps = trace.layout.steps
    what = text.format(_ENDS.get(names[column], names[column]))
    return f"its weights are not finite after step {steps[weights[0]]}; the first was {what}, at step {steps[row]}"


def _first(values: Tensor) -> tuple[int, int] | None:
    """Return row and column of the first value of an array [steps, ...] or [steps, tensors, ...] that is not finite."""
    if not values.numel():
        return None
    bad = (~values.isfinite()).reshape(len(values), values.shape[1] if values.ndim > 1 else 1, -1).any(2).nonzero()
    return (int(bad[0, 0]), int(bad[0, 1])) if len(bad) else None


def _seen(trace: Trace, key: str) -> Tensor:
    """Return an array, without losses that nobody logged: these are not numbers."""
    values = trace.arrays[key]
    if key != "loss":
        return values
    logged = trace.arrays.get("loss/logged", values.isfinite().any())  # an earlier version has not noted it
    return torch.where(logged, values, 0.0)
