"""What steps that were made before recording began, as of a run that is resumed, may have parted by rounding alone."""

import torch
from torch import Tensor

from trainparity.parity.noise.distance import Compared, norms, ratio, with_all
from trainparity.parity.noise.margin import MARGIN, margin_of
from trainparity.parity.recording.trace import Trace


def left_to_rounding(reference: Trace, kind: Compared, updates: Tensor) -> Tensor:
    """Return how far apart recording may begin what nothing but rounding moves, as a floor: float64 [T, ...].

    As the bias of attention's keys, whose gradient is nothing else: Adam makes whole steps of it, so that runs of
    another cut hold other numbers there. Zeros where no step was made before, and after the first traced one.

    Args:
        reference: Its trace.
        kind: `start` or `weight`.
        updates: The floor of updates.
    """
    lengths = norms(reference, kind).double()
    floor = torch.zeros(len(lengths), lengths.shape[1] + 1, dtype=torch.float64)
    if reference.arrays["state/norm"][0].any():
        moved = margin_of(reference.layout, MARGIN) * updates[0, :-1] > 1
        floor[0, :-1] = moved.double()  # its own length
        floor[0, -1] = ratio(with_all(lengths * moved), with_all(lengths))[0, -1]
    return floor
