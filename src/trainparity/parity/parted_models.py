"""Differences of a model that another one makes, whose weights rounding alone has parted: its own floor knows nothing.

As of a critic: its bias has a gradient of nothing but rounding where real and made samples cancel, and Adam makes a
whole step of that. The floor of the critic is as wide there; a unit that turns for it makes another gradient of the
generator.
"""

from collections.abc import Mapping
from typing import NamedTuple

from trainparity.parity.noise.distance import distances, names
from trainparity.parity.recording.trace import Trace
from trainparity.records.numbers import exact, number
from trainparity.records.verdict import Verdict


class Judged(NamedTuple):
    """What is said of one of several models, and its traces in both runs where they could be read."""

    verdict: Verdict
    traces: tuple[Trace, Trace] | None


def behind_parted_models(found: Mapping[str, Judged]) -> dict[str, Verdict]:
    """Return the verdicts on all models, `cannot judge` where what differs may be no more than that of another one.

    Args:
        found: By the models' names, in any order.
    """
    verdicts = {name: judged.verdict for name, judged in found.items()}
    differing = [name for name, verdict in verdicts.items() if verdict.verdict == "different"]
    for name in sorted(differing, key=lambda name: sequence(verdicts[name])):
        verdict = verdicts[name]
        if not follows(verdict):
            continue
        others = [
            (other, *parted)
            for other, judged in found.items()
            if other != name and (parted := _parted(judged, verdicts[other], sequence(verdict))) is not None
        ]
        apart = float(verdict.evidence.get("gradient_distance", float("inf")))
        if others and apart <= _TIMES * max(distance for _, _, distance in others):
            finer = all(one.layout.precision != "fp64" for one in found[name].traces or ())
            verdicts[name] = _unclear(verdict, *max(others, key=lambda one: one[2]), finer)
    return verdicts


def follows(verdict: Verdict) -> bool:
    """Tell whether what differs is handed on by another model: the loss that it makes, or samples known by contents."""
    return is_of_another_model(verdict) or are_replaced(verdict)


def is_of_another_model(verdict: Verdict) -> bool:
    """Tell whether what differs is known to be another model's work: it makes the samples, or the loss."""
    return bool(verdict.evidence.get("made_by_another_model") or verdict.evidence.get("judged_by_another_model"))


def are_replaced(verdict: Verdict) -> bool:
    """Tell whether samples that are known by their contents alone are replaced, as made ones are."""
    evidence = verdict.evidence
    return bool(evidence.get("identified_by") == "content" and evidence.get("missing") and evidence.get("extra"))


def sequence(verdict: Verdict) -> int:
    """Return the number of the step among those of all models."""
    return int(verdict.evidence.get("sequence", verdict.step or 0))


def _parted(judged: Judged, verdict: Verdict, step: int) -> tuple[str, float] | None:
    """Return the weight of a model that has parted most before a step of all, and how far.

    None if a fault has moved it, or rounding no further than weights that it parts everywhere.
    """
    if judged.traces is None or (verdict.verdict == "different" and sequence(verdict) < step):
        return None
    left, right = judged.traces
    before = (left.arrays["sequence"] < step).nonzero().flatten().tolist()
    if not before:
        return None
    apart = distances(left, right, "weight")[before[-1]].nan_to_num(0.0)
    far = float(apart.max())
    return (names(left, "weight")[int(apart.argmax())], far) if far > _PARTED * left.layout.unit_roundoff else None


def _unclear(verdict: Verdict, other: str, tensor: str, parted: float, finer: bool) -> Verdict:
    """Return what is said in place of a verdict; `finer`: float64 can tell more."""
    reason = (
        f"{tensor} of {other or 'the first model'}, which hands on what differs here, has parted by {exact(parted, 2)} "
        f"within its own noise floor: that may explain gradients {number(verdict.evidence['gradient_distance'])} apart"
    )
    nothing = dict.fromkeys(("cause", "link", "explanation", "step", "tensor"))
    return verdict.unclear(
        reason,
        advice="`trainparity ab` judges such runs in float64, where rounding parts less" if finer else None,
        hidden_by_floor=finer,
        evidence={},
        **nothing,
    )


_PARTED = 256
"""Unit roundoffs from which weights have parted by more than they are rounded by."""

_TIMES = 30
"""Times that a gradient may be apart as the weights of the model that it comes through; 7 were seen."""
