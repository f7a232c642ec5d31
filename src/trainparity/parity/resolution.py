"""What an `equivalent` could have seen: the smallest relative errors that would have been `different`."""

from trainparity.parity.distance import KINDS, Judged, names
from trainparity.parity.floor import Floor
from trainparity.parity.recording.trace import Trace
from trainparity.records.base import INFINITE
from trainparity.records.verdict import Resolution


def resolutions(reference: Trace, floor: Floor, margin: float) -> list[Resolution]:
    """Return the resolution of each kind of tensor that the reference has."""
    return [_resolution(reference, floor, margin, kind) for kind in KINDS if len(names(reference, kind)) > 1]


def _resolution(reference: Trace, floor: Floor, margin: float, kind: Judged) -> Resolution:
    """Multiply the floor where windows start, of several the widest, by the margin: rounding is least there."""
    starts = [window.start for window in reference.layout.windows()]
    seen = (margin * floor[kind][starts]).amax(0).clamp(max=INFINITE)
    weakest = int(seen[:-1].argmax())
    return Resolution(
        kind=kind, whole=float(seen[-1]), weakest=float(seen[weakest]), tensor=names(reference, kind)[weakest]
    )
