"""Updates of a loop that copies weights into the model, from those that its optimizer holds in a finer format."""

import torch

from trainparity.parity.noise.distance import sketches
from trainparity.parity.recording.trace import Trace


def with_copied_weights(left: Trace, right: Trace, *twins: Trace) -> list[Trace]:
    """Return two runs, and twins, whose updates end where the next step begins, where no optimizer holds the model.

    Masters in fp32 are so, which a loop updates and copies into a model in bf16 after the optimizer's step
    (Micikevicius et al., Mixed Precision Training, 2018). What the last traced step of several in a row has made is not
    known: it has no update.
    """
    if any(trace.arrays["held"].any() or sketches(trace, "update").any() for trace in (left, right)):
        return [left, right, *twins]
    return [_copied(trace) for trace in (left, right, *twins)]


def _copied(trace: Trace) -> Trace:
    layout, arrays = trace.layout, trace.arrays
    held = {"held": torch.ones_like(arrays["held"])}
    rows = torch.tensor(layout.rows_that_go_on(), dtype=torch.int64)
    copied = {name: values.clone() for name, values in arrays.items() if name.startswith("weight/")}
    for name, values in copied.items():
        values[rows - 1] = arrays[name][rows]
    moved = not torch.equal(copied["weight/sketch"], arrays["weight/sketch"])
    return Trace(layout, arrays | copied | held) if moved else trace
