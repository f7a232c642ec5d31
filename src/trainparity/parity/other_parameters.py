"""Verdicts on runs whose parameters are not the same, where their layouts alone tell why."""

from typing import Any

from trainparity.parity.recording.trace import TOGETHER, Layout
from trainparity.records.verdict import Verdict


def other_parameters(names: tuple[str, str], margin: float, left: Layout, right: Layout) -> Verdict | None:
    """Return the verdict on runs that share other parameters, or leave some out of the optimizer; None for others."""
    return _tied_otherwise(names, margin, left, right) or _held_otherwise(names, margin, left, right)


def _tied_otherwise(names: tuple[str, str], margin: float, left: Layout, right: Layout) -> Verdict | None:
    """Return the verdict on runs whose parameters differ in nothing but what is shared; None if they differ more."""
    odd = set(left.parameters) ^ set(right.parameters)
    if not odd or not odd <= set(left.tied) | set(right.tied):
        return None
    shared = ", ".join(sorted(odd))
    return _different(
        names,
        margin,
        left,
        reason=f"{shared} is tied in one run only",
        cause="weights-not-loaded",
        explanation=f"{shared} shares its values with another parameter in one run, and has its own in the other",
        advice="tie the same weights in both runs, again after loading a checkpoint",
        tensor=f"weight {min(odd)}",
        evidence={"tied": [f"{a} = {b}" for a, b in {**left.tied, **right.tied}.items() if a in odd]},
    )


def _held_otherwise(names: tuple[str, str], margin: float, left: Layout, right: Layout) -> Verdict | None:
    """Return the verdict where one run's optimizer holds several models, and the other's one of them; else None."""
    several, alone = (left, right) if _is_together(left) else (right, left)
    if not _is_together(several) or _is_together(alone):
        return None
    models: dict[str, list[list[int]]] = {}
    for name, shape in several.parameters.items():
        models.setdefault(name.partition(".")[0], []).append(shape)
    held = next((name for name, shapes in models.items() if shapes == list(alone.parameters.values())), None)
    if held is None:
        return None
    left_out = sorted(models.keys() - {held})
    one, other = names if several is left else names[::-1]
    return _different(
        names,
        margin,
        left,
        reason=f"the optimizer of {other} does not hold {', '.join(left_out)}",
        cause="parameters-not-updated",
        link="update",
        explanation=f"the optimizer of {one} updates {', '.join(sorted(models))}, and that of {other} {held} alone",
        advice="make the optimizer from the parameters of all its models",
        evidence={"not_in_the_optimizer": left_out},
    )


def _different(names: tuple[str, str], margin: float, left: Layout, **facts: Any) -> Verdict:
    """Return a verdict of `different` from the first step on."""
    return Verdict(
        left=names[0],
        right=names[1],
        verdict="different",
        weights="different",
        step=0,
        margin=margin,
        steps_compared=len(left.steps),
        **facts,
    )


def _is_together(layout: Layout) -> bool:
    return layout.modules.get("(model)") == TOGETHER
