"""What a loop makes of its gradients between backward and the update, by what backward has made of them."""

import torch
from torch import Tensor

from trainparity.parity.recording.trace import Trace
from trainparity.parity.steps.fitting import fit


def kept_after_backward(trace: Trace, row: int) -> float:
    """Return the factor between the mean over ranks of what backward made and what was recorded; 0: not known."""
    made, total = made_and_recorded(trace, row)
    if not made.numel() or not made.abs().sum() or not total.abs().sum():
        return 0.0
    factor, rest = fit(made, total)
    return factor if rest < max(1e-3, trace.layout.stored_roundoff) else 0.0


def made_and_recorded(trace: Trace, row: int) -> tuple[Tensor, Tensor]:
    """Return sketches of what backward made and of what was recorded; of shards those of all ranks, side by side."""
    total = trace.arrays["rank/total"][row]
    if (after := trace.arrays["rank/after"][row]).any():
        return after.flatten(), total.flatten()
    return made_by_backward(trace, row) if trace.arrays["rank/micro"][row].numel() else torch.zeros(0), total[0]


def made_by_backward(trace: Trace, row: int) -> Tensor:
    """Return the mean over ranks of what backward passes have made, without those whose gradients were thrown away.

    A discriminator's are so, that the generator's loss went through, before its own step.
    """
    micro, held = trace.arrays["rank/micro"][row], trace.arrays["rank/held"][row]
    for number in range(min(held.shape[1], micro.shape[1])):  # parts of a model may each be held by none of the others
        last = micro[:, number:].sum(1).mean(0)
        if not held[:, number].any() and last.any():
            as_is, left_over = fit(last, trace.arrays["rank/total"][row][0])
            if max(abs(as_is - 1), left_over) < AS_MADE:
                return last
    return micro.sum(1).mean(0)


AS_MADE = 1e-3
"""Part by which a gradient may differ from the sum of the passes that made it, for rounding."""
