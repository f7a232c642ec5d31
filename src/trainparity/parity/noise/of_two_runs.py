"""The floor of two runs: the reference's, and what may part these two beside it."""

from trainparity.parity.noise.after_jumps import after_jumps
from trainparity.parity.noise.after_kinks import after_kinks
from trainparity.parity.noise.bias_correction import further
from trainparity.parity.noise.floor import Floor
from trainparity.parity.noise.other_layout import in_other_layout
from trainparity.parity.recording.trace import Trace


def of_two_runs(left: Trace, right: Trace, floor: Floor) -> Floor:
    """Return how far a run may be from a reference whose own floor is given, wherever these two are held together."""
    floor = in_other_layout(left, right, after_jumps(left, right, floor))
    return after_kinks(left, right, further(left, right, floor))
