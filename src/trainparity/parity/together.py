"""One verdict on runs that train several models, each with an optimizer of its own."""

from collections.abc import Mapping, Sequence
from typing import Any

from trainparity.parity.parted_models import are_replaced, is_of_another_model, sequence
from trainparity.records.verdict import UNKNOWN, Resolution, Verdict, Worst

FIRST = "(the first)"
"""What stands for the name of a run's own model, which has none."""


def together(found: Mapping[str, Verdict]) -> Verdict:
    """Return the verdict on all models of two runs: that of the model whose difference comes first, if one differs.

    Args:
        found: By the models' names, at least one; the run's own model has none.
    """
    verdicts = list(found.items())
    different = [item for item in verdicts if item[1].verdict == "different"]
    unjudged = [item for item in verdicts if item[1].exit_code == 2]
    if different:
        name, chosen = _first(different)
    elif unjudged:
        name, chosen = unjudged[0]
    else:
        name, chosen = max(verdicts, key=lambda item: item[1].distance_over_floor or 0.0)
    judged = [verdict for verdict in found.values() if verdict.distance_over_floor is not None]
    update: dict[str, Any] = {
        "model": name or None,
        "models": [each or FIRST for each in found],
        **_least_compared(judged),
        "later_steps": [
            later.model_copy(update={"model": name or FIRST})
            for name, verdict in verdicts
            for later in verdict.later_steps
        ],
        "calibrated": all(verdict.calibrated for verdict in judged),
        "ranks_agree": all(verdict.ranks_agree for verdict in found.values()),
    }
    if chosen.exit_code == 0:
        equal = all(verdict.verdict == "bitwise" for verdict in found.values())
        update |= {
            "verdict": "bitwise" if equal else "equivalent",
            "weights": "bitwise" if all(verdict.weights == "bitwise" for verdict in judged) else "equivalent",
            "resolution": max((v.resolution for v in judged if v.resolution is not None), default=None),
            "resolutions": _coarsest(found),
            "worst": _worst(found),
            "model": None,
        }
    return chosen.model_copy(update=update)


def _least_compared(judged: Sequence[Verdict]) -> dict[str, Any]:
    """Return how many steps are compared of the model of which the smallest part is; of several that made most."""

    def compared(verdict: Verdict) -> tuple[float, int]:
        return verdict.steps_compared / (verdict.steps_made or verdict.steps_compared or 1), -verdict.steps_compared

    least = min(judged, key=compared, default=None)
    return {name: getattr(least, name) for name in ("steps_compared", "steps_made")} if least else {}


def _first(different: list[tuple[str, Verdict]]) -> tuple[str, Verdict]:
    """Return the difference that comes first, or the one of another model that hands it other values.

    Samples known by contents alone may be made of another model's, as the points between real and made ones, or by it
    in an earlier step, as those that a buffer holds.
    """
    first, *others = sorted(different, key=lambda item: _rank(item[1]))
    if first[1].link == "loss" and (before := _before_the_loss(first[1], others)):
        return before
    if not (are_replaced(first[1]) or (first[1].cause == UNKNOWN and first[1].link == "inputs")):
        return first
    earliest = min(different, key=lambda item: sequence(item[1]))
    if sequence(earliest[1]) < sequence(first[1]):
        return earliest
    return next((other for other in others if other[1].link == "forward" and not _rank(other[1])[0]), first)


def _before_the_loss(first: Verdict, others: list[tuple[str, Verdict]]) -> tuple[str, Verdict] | None:
    """Return the difference of a model that is given or makes something else in the step in which another's loss is.

    As a decoder, whose output an encoder's loss is made of: which of both optimizers steps first says nothing. Or of
    one whose average, of which targets are made, has other weights.
    """
    return next(
        (
            (name, verdict)
            for name, verdict in others
            if verdict.step == first.step
            and (verdict.link in ("inputs", "forward") or verdict.evidence.get("averages"))
            and not _rank(verdict)[0]
            and verdict.cause != UNKNOWN
        ),
        None,
    )


def _rank(verdict: Verdict) -> tuple[bool, int, bool]:
    """Order differences: what follows from another model comes last, then by the order in which steps are made.

    A model that one run does not train at all comes before another one's step in the place of its own.
    """
    return is_of_another_model(verdict), sequence(verdict), verdict.distance_over_floor is not None


def _coarsest(found: Mapping[str, Verdict]) -> list[Resolution]:
    """Return for each kind of tensor the widest resolutions of all models."""
    widest: dict[str, Resolution] = {}
    for name, verdict in found.items():
        for one in verdict.resolutions:
            named = one.model_copy(update={"tensor": f"{name}: {one.tensor}"}) if name else one
            other = widest.get(one.kind, named)
            weaker = max(other, named, key=lambda seen: seen.weakest)
            widest[one.kind] = weaker.model_copy(update={"whole": max(other.whole, named.whole)})
    return list(widest.values())


def _worst(found: Mapping[str, Verdict]) -> list[Worst]:
    """Return the largest distance over floor of each kind of tensor, over all models."""
    largest: dict[str, Worst] = {}
    for name, verdict in found.items():
        for worst in verdict.worst:
            if worst.kind not in largest or worst.distance_over_floor > largest[worst.kind].distance_over_floor:
                tensor = f"{name}: {worst.tensor}" if name else worst.tensor
                largest[worst.kind] = worst.model_copy(update={"tensor": tensor})
    return list(largest.values())
