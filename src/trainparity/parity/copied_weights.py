"""A loop that copies weights into the model, and gradients out of it: its optimizer holds them in a finer format."""

import torch
from torch import Tensor

from trainparity.parity.noise.distance import norms, ratio, sketches
from trainparity.parity.noise.floor import Floor
from trainparity.parity.recording.integrity import flaw
from trainparity.parity.recording.trace import Trace


def with_copied_weights(left: Trace, right: Trace, *twins: Trace) -> list[Trace]:
    """Return two runs, and twins, whose updates end where the next step begins, where no optimizer holds the model.

    Masters in fp32 are so, which a loop updates and copies into a model in bf16 after the optimizer's step
    (Micikevicius et al., Mixed Precision Training, 2018). What the last traced step of several in a row has made is not
    known: it has no update. Where one loop alone takes gradients away, neither run has any.
    """
    if any(trace.arrays["held"].any() or sketches(trace, "update").any() for trace in (left, right)):
        return [left, right, *twins]
    if any(flaw(trace.layout, trace.arrays) for trace in (left, right, *twins)):
        return [left, right, *twins]  # damaged, which is said later
    return [_copied(trace) for trace in _as_taken(left, right, *twins)]


def _as_taken(left: Trace, right: Trace, *twins: Trace) -> list[Trace]:
    """Return runs without gradients where one loop alone takes them away, and no optimizer finds those of the other."""
    traces = [left, right, *twins]
    taken = [_loses_gradients(trace) for trace in traces[:2]]
    if taken[0] == taken[1] or not all(trace.arrays["rank/micro"].any() for trace in traces[:2]):
        return traces
    return [Trace(trace.layout, trace.arrays | _no_gradients(trace)) for trace in traces]


def _no_gradients(trace: Trace) -> dict[str, Tensor]:
    taken = (name for name in trace.arrays if name.startswith("gradient/") or name in _AT_THE_STEP)
    zeros = {name: torch.zeros_like(trace.arrays[name]) for name in taken}
    return zeros | {"rank/missing": torch.ones_like(trace.arrays["rank/missing"])}


_AT_THE_STEP = ("gradient_norm", "applied/norm", "rank/total")
"""What else is recorded of the gradients that the optimizer's step finds in the model."""


def _copied(trace: Trace) -> Trace:
    layout, arrays = trace.layout, trace.arrays
    held = {"held": torch.ones_like(arrays["held"])}
    rows = torch.tensor(layout.rows_that_go_on(), dtype=torch.int64)
    copied = {name: values.clone() for name, values in arrays.items() if name.startswith("weight/")}
    for name, values in copied.items():
        values[rows - 1] = arrays[name][rows]
    moved = not torch.equal(copied["weight/sketch"], arrays["weight/sketch"])
    return Trace(layout, arrays | copied | held) if moved else trace


def take_other_gradients(left: Trace, right: Trace, floor: Floor, margin: float) -> bool:
    """Tell whether backward makes other gradients, where both loops take them away, as to copies, before the step."""
    return all(map(_loses_gradients, (left, right))) and not _made_alike(left, right, floor, margin)


def _loses_gradients(trace: Trace) -> bool:
    """Tell whether backward passes make gradients, and no step finds any."""
    return bool(trace.arrays["rank/micro"].any()) and not norms(trace, "gradient").any()


def _made_alike(left: Trace, right: Trace, floor: Floor, margin: float) -> bool:
    """Tell whether backward makes the same gradients in all steps, as far as those of what models return tell noise."""
    ours, theirs = (trace.arrays["rank/micro"].sum(2).mean(1) for trace in (left, right))
    differs = torch.where((ours == theirs) | (ours.isnan() & theirs.isnan()), 0.0, ours - theirs)
    apart = ratio(torch.linalg.vector_norm(differs, dim=1), torch.linalg.vector_norm(ours, dim=1))
    noise = floor["activation_gradient"][:, -1].clamp(min=left.layout.unit_roundoff)
    return bool(((apart == 0) | (apart <= margin * noise)).all())  # noise is not known of what is not finite


TAKEN = (
    "backward makes other gradients, and no step of the optimizer finds one in the model: what it applies, as to "
    "copies of the weights, is not seen"
)
LEAVE_THEM = "keep the model's gradients until the optimizer's step, or record the model whose parameters it holds"
