"""Buffers that one of two runs has and that never change, as a mask or a table of angles: both may train alike."""

from collections.abc import Set

from trainparity.parity.noise.distance import never_change
from trainparity.parity.recording.integrity import END
from trainparity.parity.recording.trace import Trace


def without_own_constants(left: Trace, right: Trace, *twins: Trace) -> list[Trace]:
    """Return two runs, and twins of the left one, without the buffers that one run alone has and never changes."""
    constant = [_constant(trace) for trace in (left, right)]
    names = [set(trace.layout.buffers) for trace in (left, right)]
    left_out = (constant[0] - names[1]) | (constant[1] - names[0])
    return [_without(trace, left_out) if left_out else trace for trace in (left, right, *twins)]


def _constant(trace: Trace) -> set[str]:
    return {name for name, stays in zip(trace.layout.buffers, never_change(trace).tolist(), strict=True) if stays}


def _without(trace: Trace, names: Set[str]) -> Trace:
    kept = [column for column, name in enumerate(trace.layout.buffers) if name not in names]
    buffers = {name: shape for name, shape in trace.layout.buffers.items() if name not in names}
    layout = trace.layout.model_copy(update={"buffers": buffers})
    arrays = {key: array[:, kept] if key.startswith("buffer/") else array for key, array in trace.arrays.items()}
    arrays |= {key: array[kept] for key, array in trace.arrays.items() if key.startswith(f"{END}buffer_")}
    return Trace(layout, arrays)
