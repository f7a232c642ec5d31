"""The running statistics that two runs of equal weights end with: a loop may make them anew, for its average."""

from collections.abc import Sequence

import torch
from torch import Tensor

from trainparity.parity.noise.distance import distances, times
from trainparity.parity.noise.floor import Floor
from trainparity.parity.noise.rounding import rounding
from trainparity.parity.recording.trace import Trace
from trainparity.records.base import INFINITE
from trainparity.records.names import some
from trainparity.records.numbers import number
from trainparity.records.verdict import Verdict


def judged_by_statistics(
    verdict: Verdict, left: Trace, right: Trace, twins: Sequence[Trace], floor: Floor, apart: float = 0.0
) -> Verdict:
    """Return a verdict that the runs are the same, or another one where they end with other running statistics.

    Args:
        verdict: On the traced steps, and on the weights at the end.
        left: The reference.
        right: The other run.
        twins: Of the reference, which show how far right runs part until then.
        floor: The noise floor of the traced steps.
        apart: Distance of all weights at the end, which agree.
    """
    ours, theirs = _end(left), _end(right)
    if ours is None or theirs is None:
        return verdict
    one, other = (end.arrays["buffer/digest"][0] for end in (ours, theirs))
    differ = (one != other) & (one != 0) & (other != 0)
    if not differ.any():
        return verdict
    off = times(distances(ours, theirs, "buffer")[0], _floor(ours, left, twins, floor, apart))[:-1]
    off = off.masked_fill(~differ, 0.0)
    buffers = list(left.layout.buffers)
    if lost := [name for name, unknown in zip(buffers, off.isnan().tolist(), strict=True) if unknown]:
        return verdict.unclear(
            f"{some(lost)}: not finite when a run ends, so nothing can be said of what differs there"
        )
    if float(off.max()) > verdict.margin:
        return _different(verdict, left, off, distances(ours, theirs, "buffer")[0])
    known = max(verdict.distance_over_floor or 0.0, float(off.max()))
    return verdict.model_copy(update={"verdict": "equivalent", "distance_over_floor": known})


def _end(trace: Trace) -> Trace | None:
    """Return the buffers that a run ends with as those of one step; None where they are not known."""
    if "end/buffer_digest" not in trace.arrays:
        return None
    return Trace(trace.layout, {f"buffer/{name}": trace.arrays[f"end/buffer_{name}"][None] for name in _RECORDED})


_RECORDED = ("sketch", "digest")


def _floor(ours: Trace, left: Trace, twins: Sequence[Trace], floor: Floor, apart: float) -> Tensor:
    """Return how far running statistics of right runs part until the end: float64 [B + 1].

    By as many roundings as until the last traced step, or as far as twins do. Without twins of as many steps by the
    square of the steps, as is assumed of weights, and by what these are apart, which makes other statistics.
    """
    once, layout = rounding(ours, "buffer")[0], left.layout
    traced = once * _roundings(left, floor)
    ends = [end for twin in twins if twin.layout.made == layout.made and (end := _end(twin))]
    if ends:
        return torch.stack([traced, *(distances(ours, end, "buffer")[0] for end in ends)]).amax(0)
    grown = ((1 + layout.made) / (1 + layout.steps[-1])) ** 2
    return torch.maximum(traced * grown, once / layout.unit_roundoff * apart)


def _roundings(left: Trace, floor: Floor) -> Tensor:
    """Return how many roundings buffers may be apart in the last traced step: float64 [B + 1].

    Of a mean that was zero once, as an average's before its first update, as many as all of them together.
    """
    once = rounding(left, "buffer")
    several = (floor["buffer"][-1] / once[-1]).clamp(min=1)
    return torch.where((once < 1).all(0), several, several[-1])


def _different(verdict: Verdict, left: Trace, off: Tensor, apart: Tensor) -> Verdict:
    beyond = [place for place, far in enumerate(off.tolist()) if far > verdict.margin]
    buffers, worst, made = list(left.layout.buffers), int(off.argmax()), left.layout.made - 1
    found, several = [buffers[place] for place in beyond], len(left.layout.steps)
    tensor = f"buffer {buffers[worst]}"
    return verdict.model_copy(
        update={
            "verdict": "different",
            "step": made,
            "tensor": tensor,
            "distance_over_floor": max(verdict.distance_over_floor or 0.0, float(off.max())),
            "reason": f"{tensor} is {number(float(off.max()))} x the noise floor apart after the last step, {made}",
            "cause": "buffers-only",
            "link": "buffers",
            "explanation": f"only buffers differ when the runs end, first {some(found)}: weights agree then, and so do "
            f"weights and buffers in all {several} steps that were traced",
            "advice": "see whether one run alone makes the statistics of its average anew (`update_bn`), or passes "
            "samples in training mode after its last step, as a validation without model.eval()",
            "evidence": {"buffers": found, "distance": min(float(apart[worst]), INFINITE)},
            "resolution": None,
            "resolutions": [],
        }
    )
