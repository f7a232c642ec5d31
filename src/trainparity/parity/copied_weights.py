"""Updates of a loop that copies weights into the model, from those that its optimizer holds in a finer format."""

import torch

from trainparity.parity.distance import sketches
from trainparity.parity.recording.trace import Trace


def with_copied_weights(trace: Trace) -> Trace:
    """Return a trace whose updates end where the next step begins, if the optimizer moves no weight of the model.

    Masters in fp32 are so, which a loop updates and copies into a model in bf16 after the optimizer's step
    (Micikevicius et al., Mixed Precision Training, 2018). What the last traced step of several in a row has made is not
    known: it has no update.
    """
    layout, arrays = trace.layout, trace.arrays
    if arrays["held"].any() or sketches(trace, "update").any():
        return trace
    rows = torch.tensor([row for window in layout.windows() for row in range(window.start, window.stop - 1)
                         if layout.steps[row + 1] == layout.steps[row] + 1], dtype=torch.int64)  # fmt: skip
    copied = {name: values.clone() for name, values in arrays.items() if name.startswith("weight/")}
    for name, values in copied.items():
        values[rows] = arrays[name][rows + 1]
    if torch.equal(copied["weight/sketch"], arrays["weight/sketch"]):
        return trace
    return Trace(layout, arrays | copied | {"held": torch.ones_like(arrays["held"])})
