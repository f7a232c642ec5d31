"""Buffers that never change, as a mask or a table of angles, and that two runs which train alike need not share."""

from collections.abc import Set

import torch

from trainparity.parity.noise.rounding import never_change
from trainparity.parity.recording.integrity import END
from trainparity.parity.recording.trace import Trace


def without_own_constants(left: Trace, right: Trace, *twins: Trace) -> list[Trace]:
    """Return two runs, and twins of the left one, without the buffers that one run alone has and never changes.

    And without those that neither changes and that have another length, as a table of more positions, or other values
    of which nothing else is made, as a mask of another large number: gradients and weights have the same bits.
    """
    constant = [never_change(trace) for trace in (left, right)]
    names = [set(trace.layout.buffers) for trace in (left, right)]
    left_out = (constant[0] - names[1]) | (constant[1] - names[0])
    left_out |= {name for name in constant[0] & constant[1] if _is_immaterial(left, right, name)}
    return [_without(trace, left_out) if left_out else trace for trace in (left, right, *twins)]


def _is_immaterial(left: Trace, right: Trace, name: str) -> bool:
    if left.layout.buffers[name] != right.layout.buffers[name]:
        return True
    digests = [trace.arrays["buffer/digest"][0, list(trace.layout.buffers).index(name)] for trace in (left, right)]
    return bool(digests[0] != digests[1]) and all(
        torch.equal(*(trace.arrays[f"{kind}/digest"] for trace in (left, right))) for kind in ("gradient", "weight")
    )


def _without(trace: Trace, names: Set[str]) -> Trace:
    kept = [column for column, name in enumerate(trace.layout.buffers) if name not in names]
    buffers = {name: shape for name, shape in trace.layout.buffers.items() if name not in names}
    layout = trace.layout.model_copy(update={"buffers": buffers})
    arrays = {key: array[:, kept] if key.startswith("buffer/") else array for key, array in trace.arrays.items()}
    arrays |= {key: array[kept] for key, array in trace.arrays.items() if key.startswith(f"{END}buffer_")}
    return Trace(layout, arrays)
