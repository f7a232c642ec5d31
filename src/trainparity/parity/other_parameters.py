"""Verdicts on runs whose parameters are not the same, where their layouts alone tell why."""

from typing import Any

from trainparity.parity.extent import extent
from trainparity.parity.recording.names import MODEL
from trainparity.parity.recording.trace import TOGETHER, Layout, Trace
from trainparity.records.verdict import Verdict


def other_parameters(names: tuple[str, str], margin: float, left: Trace, right: Trace) -> Verdict | None:
    """Return the verdict on runs that share other parameters, or whose optimizers hold others; None for others."""
    tied = _tied_otherwise(names, margin, left.layout, right.layout)
    found = (tied, _held_otherwise(names, margin, left, right), _without_gradients(names, margin, left, right))
    return next((verdict for verdict in found if verdict is not None), None)


def _tied_otherwise(names: tuple[str, str], margin: float, left: Layout, right: Layout) -> Verdict | None:
    """Return the verdict on runs whose parameters differ in nothing but what is shared; None if they differ more."""
    odd = set(left.parameters) ^ set(right.parameters)
    if not odd or not odd <= set(left.tied) | set(right.tied):
        return None
    shared = ", ".join(sorted(odd))
    return different(
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


def _held_otherwise(names: tuple[str, str], margin: float, left: Trace, right: Trace) -> Verdict | None:
    """Return the verdict where one run's optimizer holds several models, and the other's one of them; else None.

    A model that gets no gradient where it is held, such as a teacher, is missed nowhere.
    """
    several, alone = (left, right) if _is_together(left.layout) else (right, left)
    if not _is_together(several.layout) or _is_together(alone.layout):
        return None
    models: dict[str, list[list[int]]] = {}
    for name, shape in several.layout.parameters.items():
        models.setdefault(name.partition(".")[0], []).append(shape)
    held = next((name for name, shapes in models.items() if shapes == list(alone.layout.parameters.values())), None)
    if held is None:
        return None
    trained = several.arrays["gradient/norm"].ne(0).any(0).tolist()  # NaN is a gradient, too
    with_gradient = {
        name.partition(".")[0] for name, is_ in zip(several.layout.parameters, trained, strict=True) if is_
    }
    left_out = sorted(with_gradient - {held})
    if not left_out:
        return None
    one, other = names if several is left else names[::-1]
    all_of_them = ", ".join(sorted({held, *left_out}))
    return different(
        names,
        margin,
        left.layout,
        reason=f"the optimizer of {other} does not hold {', '.join(left_out)}",
        cause="parameters-not-updated",
        link="update",
        explanation=f"the optimizer of {one} updates {all_of_them}, and that of {other} {held} alone",
        advice="make the optimizer from the parameters of all its models",
        evidence={"not_in_the_optimizer": left_out},
    )


def _without_gradients(names: tuple[str, str], margin: float, left: Trace, right: Trace) -> Verdict | None:
    """Return the verdict where no gradient ever reaches what one run's optimizer holds; None where none is so alone."""
    stale = [bool(trace.arrays["rank/missing"].all()) for trace in (left, right)]
    if stale[0] == stale[1]:
        return None
    there, other = names if stale[0] else names[::-1]
    return different(
        names,
        margin,
        left.layout,
        reason=f"no gradient reaches what the optimizer of {there} holds",
        cause="parameters-not-updated",
        link="update",
        explanation=f"no gradient reaches what the optimizer of {there} holds, in any step: other tensors than in "
        f"{other}, such as those of before the model was sharded, moved or replaced",
        advice="make the optimizer last, from the parameters of the model that is trained",
    )


def different(names: tuple[str, str], margin: float, left: Layout, **facts: Any) -> Verdict:
    """Return a verdict of `different` from the first step on."""
    return Verdict(
        left=names[0],
        right=names[1],
        verdict="different",
        weights="different",
        step=0,
        margin=margin,
        **extent(left),
        **facts,
    )


def _is_together(layout: Layout) -> bool:
    return layout.modules.get(MODEL) == TOGETHER
