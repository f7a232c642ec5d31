"""How many of the steps that runs made are compared, and which come after the last one that is."""

from typing import Any

from trainparity.parity.recording.trace import Layout
from trainparity.records.later_steps import JudgedBy, LaterSteps
from trainparity.records.numbers import counted
from trainparity.records.verdict import Verdict


def extent(*runs: Layout) -> dict[str, Any]:
    """Return fields of a verdict: how many steps are compared, how many were made, and those after the last compared.

    Nothing judges the latter, until `judged_by` says what does.

    Args:
        runs: Two runs at the steps that are compared, or one of them where the other one has none.
    """
    made, cut_short = max(run.made for run in runs), next((run.cut_short for run in runs if run.cut_short), "")
    later = _after(runs[0], made)
    if cut_short:
        later.append(LaterSteps(first=made, last=None, judged_by="nothing", because=cut_short))
    # Of a recording that ended before the training did nobody knows how many steps that made.
    return {
        "steps_compared": len(runs[0].steps),
        "steps_made": None if cut_short else made or None,
        "later_steps": later,
    }


def judged_by(verdict: Verdict, what: JudgedBy, made: int, because: str | None = None) -> Verdict:
    """Return a verdict that says what judges the steps after the last compared one, up to the end of `made` steps."""
    later = [
        one.model_copy(update={"judged_by": what, "because": because}) if one.last == made - 1 else one
        for one in verdict.later_steps
    ]
    return verdict.model_copy(update={"later_steps": later})


def _after(run: Layout, made: int) -> list[LaterSteps]:
    """Return the steps after the last one that is compared; where windows restart, those that the last one begins."""
    first, begins = run.steps[-1] + 1, (made - 1) // run.window * run.window if run.window else 0
    found = []
    if first < min(begins, made):
        because = f"each window of {counted(run.window, 'step')} begins with the reference's weights"
        found.append(LaterSteps(first=first, last=begins - 1, judged_by="nothing", because=because))
    if max(first, begins) < made:
        found.append(LaterSteps(first=max(first, begins), last=made - 1, judged_by="nothing"))
    return found
