"""Runs judged again in float64, where rounding is a billion times smaller and a fault is as large as before."""

from trainparity.records.numbers import exact
from trainparity.records.verdict import JUDGED, UNKNOWN, Verdict

_ROUNDING = 1e-4
"""Part of a distance that is left of it in float64 if it was rounding, at the most."""


def in_float64(before: Verdict, again: Verdict) -> tuple[bool, str]:
    """Compare a verdict of `different` with that on the same runs in float64.

    Returns:
        Whether float64 shows that the difference is rounding, and a clause that says what it shows.
    """
    if again.verdict not in JUDGED:
        return False, f"float64 gave no answer: {again.reason}"
    distances = [max((worst.distance for worst in verdict.worst), default=0.0) for verdict in (before, again)]
    text = f"in float64 the largest distance is {exact(distances[1], 2)}, after {exact(distances[0], 2)}"
    return distances[1] <= _ROUNDING * distances[0], text


def judged_again(before: Verdict, again: Verdict, *, takes_more: bool = False) -> Verdict:
    """Return a verdict of `different` with what float64 shows; `equivalent` where that is rounding and nothing else.

    Args:
        before: The verdict on the runs as they are.
        again: The one on them in float64.
        takes_more: Whether float64 may have taken away more than rounding.
    """
    vanishes, text = in_float64(before, again)
    if again.verdict not in JUDGED:
        return confirmed(before, text)
    if not vanishes:
        named = _names_more(before, again, takes_more=takes_more)
        found = _with_cause_of(again, before) if named else before
        return confirmed(found, f"{text}: it is not rounding{', and has its cause there' if named else ''}")
    if takes_more:
        other = "or a coarser format or compiled code of one of them: float64 takes all of it away"
        return confirmed(before, f"{text}: rounding, {other}")
    return rounding(before.model_copy(update={"later_steps": again.later_steps}), text)


def _names_more(before: Verdict, again: Verdict, *, takes_more: bool) -> bool:
    """Tell whether float64 names a cause where none was proved, or shows that what was seen first was rounding."""
    if again.verdict != "different" or again.cause in (None, UNKNOWN):
        return False
    if before.step is None or again.step is None:
        return before.cause == UNKNOWN
    if before.cause == UNKNOWN:
        return again.step >= before.step or _is_coarse(before)
    return again.step > before.step and not takes_more


def _is_coarse(before: Verdict) -> bool:
    """Tell whether rounding may have hidden earlier steps.

    In a finer format a float64 run that parts earlier has another number there, which that format writes as the same:
    a constant that one script holds as a NumPy array of float32.
    """
    return any(worst.floor > _COARSE for worst in before.worst)


_COARSE = 1e-4
"""Noise floor from which on it is that of bf16, fp16 or TF32."""


def _with_cause_of(again: Verdict, before: Verdict) -> Verdict:
    """Return a verdict with the cause that float64 shows, told of the runs as they are."""
    fields = ("cause", "link", "explanation", "advice", "step", "tensor", "evidence", "reason", "model")
    told = _told_of(before, again)
    return before.model_copy(update={field: getattr(told, field) for field in fields})


def _told_of(before: Verdict, again: Verdict) -> Verdict:
    """Return the verdict on runs in float64 with the names of the runs as they are."""
    told: dict[str, str | None] = {"left": before.left, "right": before.right}
    for field in ("explanation", "advice", "reason"):
        text: str | None = getattr(again, field)
        for there, here in ((again.left, before.left), (again.right, before.right)):
            text = text and text.replace(there, here)
        told[field] = text
    return again.model_copy(update=told)


def unhidden(before: Verdict, again: Verdict) -> Verdict:
    """Return the verdict in float64 in place of one of `equivalent` in a format whose rounding hid a fault."""
    if again.verdict not in JUDGED:
        return confirmed(before, f"float64 gave no answer: {again.reason}")
    vanishes, text = in_float64(before, again)
    if vanishes or again.verdict != "different":
        return confirmed(before, f"{text}: {'it was rounding' if vanishes else 'the same training there too'}")
    hidden = f"{text}: the rounding of the runs' own format hid it"
    return _told_of(before, again).model_copy(update={"confirmation": hidden})


def rounding(before: Verdict, text: str) -> Verdict:
    """Return a verdict in place of one of `different` that float64 shows to be rounding, as a clause says."""
    same = {"verdict": "equivalent", "weights": "equivalent", "cause": None, "explanation": None, "advice": None}
    return confirmed(before.model_copy(update=same), f"{text}: it was rounding")


def confirmed(before: Verdict, text: str) -> Verdict:
    """Return a verdict with what a further run has shown, after what others have."""
    so_far = f"{before.confirmation}; " if before.confirmation else ""
    return before.model_copy(update={"confirmation": so_far + text})


def settled(before: Verdict, again: Verdict) -> Verdict:
    """Return the verdict on the same runs in float64 in place of one of `hidden_by_floor`."""
    if again.verdict not in JUDGED:
        no_answer = f"float64 gave no answer: {again.reason}"
        return before.model_copy(update={"confirmation": no_answer, "advice": None})
    facts = {"confirmation": f"judged in float64, as {before.reason}"}
    if again.verdict == "bitwise":
        facts |= {"verdict": "equivalent", "weights": "equivalent"}
    return _told_of(before, again).model_copy(update=facts)
