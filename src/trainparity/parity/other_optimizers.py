"""Parameters that another optimizer of one run holds than of the other one's: each is recorded by itself."""

from collections.abc import Mapping

import torch

from trainparity.parity.causes.optimizer import held_by_another
from trainparity.parity.parted_models import Judged
from trainparity.parity.recording.trace import Trace
from trainparity.records.names import some
from trainparity.records.verdict import Verdict


def held_by_others(found: Mapping[str, Judged]) -> dict[str, Judged]:
    """Return what is said of all models; of parameters that the optimizer of one does not hold, who updates them.

    Args:
        found: By the models' names.
    """
    return {name: judged._replace(verdict=_said(judged, found)) for name, judged in found.items()}


def _said(judged: Judged, found: Mapping[str, Judged]) -> Verdict:
    verdict = judged.verdict
    names = verdict.evidence.get("not_in_the_optimizer")
    if judged.traces is None or not names or not set(verdict.evidence.get("parameters", ())) <= set(names):
        return verdict
    left, right = (_holder(found, run, names, judged.traces[run]) for run in (0, 1))
    if left is None or right is None:
        return verdict
    return verdict.model_copy(
        update={
            "cause": held_by_another.cause,
            "link": held_by_another.link,
            "explanation": f"{some(names)}: updated by {left} in {verdict.left} and by {right} in {verdict.right}",
            "advice": held_by_another.advice,
        }
    )


def _holder(found: Mapping[str, Judged], run: int, names: list[str], beside: Trace) -> str | None:
    """Return the optimizer of a run that holds parameters of a model, with the name that it is recorded under."""
    for model, judged in found.items():
        if judged.traces is not None and _holds(judged.traces[run], names, beside):
            optimizer = judged.traces[run].layout.optimizer
            return f"{optimizer} ({model})" if model else optimizer
    return None


def _holds(trace: Trace, names: list[str], beside: Trace) -> bool:
    """Tell whether an optimizer holds parameters, which are those of a model beside: of these names and numbers."""
    if trace.layout.parameters != beside.layout.parameters or not set(names) <= set(trace.layout.parameters):
        return False
    places = [list(trace.layout.parameters).index(name) for name in names]
    ours, theirs = (each.arrays["start/sketch"][0][places] for each in (trace, beside))
    return bool(trace.arrays["held"].any(0)[places].all()) and torch.allclose(ours, theirs, rtol=_SAME, atol=0.0)


_SAME = 1e-6
"""Part by which numbers of one tensor differ that two Recorders have looked at."""
