"""From claims to verdicts: confirmed, not confirmed, or not measurable here and why."""

import math
from collections.abc import Mapping

from trainparity.claims.measures.figure import Figure
from trainparity.claims.measures.registry import MEASURES
from trainparity.claims.quantities import ABSOLUTE
from trainparity.claims.schema import Claim, Range
from trainparity.claims.study import NotMeasurable, Study
from trainparity.environment import Environment
from trainparity.records.claims import ClaimReport, ClaimResult
from trainparity.records.numbers import counted


def evaluate(name: str, claims: Mapping[str, Claim], study: Study, environment: Environment) -> ClaimReport:
    """Measure every claim of the study called `name`."""
    figures = {key: _figure(claim, study, environment) for key, claim in claims.items()}
    dates = [timing.date for figure in figures.values() if isinstance(figure, Figure) for timing in figure.timings]
    gpus = [accelerator.name for accelerator in environment.accelerators]
    return ClaimReport(
        study=name,
        scale=study.params.scale,
        dataset=study.manifest.dataset,
        environment=f"{environment.processor}, {counted(environment.cores, 'core')}, {', '.join(gpus) or 'no GPU'}, "
        f"torch {environment.torch}",
        fingerprint=environment.fingerprint,
        date=max(dates, default=""),
        results=[_result(key, claims[key], figure, study) for key, figure in figures.items()],
    )


def _figure(claim: Claim, study: Study, environment: Environment) -> Figure | NotMeasurable:
    try:
        _check_devices(claim, environment)
        study.meet(claim.needs, _runs(claim))
        return MEASURES[type(claim.measure)](claim.measure, study)
    except NotMeasurable as reason:
        return reason


def _check_devices(claim: Claim, environment: Environment) -> None:
    """Look for the claim's devices before anything else: it is the plainest reason."""
    needs = claim.needs
    if needs.device is None or needs.device == "cpu":
        return
    there = sum(accelerator.kind == needs.device for accelerator in environment.accelerators)
    if there < needs.devices:
        kind = {"cuda": "CUDA GPU", "mps": "Apple GPU"}[needs.device]
        raise NotMeasurable(f"needs {needs.devices} {kind}{'s' * (needs.devices > 1)}; this machine has {there}")


def _runs(claim: Claim) -> list[str]:
    """Return the runs that a claim is about."""
    measure = claim.measure
    named = [getattr(measure, field, None) for field in ("run", "over", "order")]
    listed = [getattr(measure, field, []) for field in ("runs", "small", "large")]
    return [*filter(None, named), *(run for runs in listed for run in runs)]


def _result(name: str, claim: Claim, figure: Figure | NotMeasurable, study: Study) -> ClaimResult:
    result = ClaimResult(
        name=name,
        statement=claim.statement,
        published=claim.published,
        figure=claim.figure,
        low=claim.expect.low if claim.expect else None,
        high=claim.expect.high if claim.expect else None,
        measured=None,
        verdict="not measurable here",
        hardware=None,
    )
    if isinstance(figure, NotMeasurable):
        return result.model_copy(update={"reason": str(figure)})
    holds = figure.holds if claim.expect is None else _within(figure.value, claim.expect)
    if holds is None:
        raise ValueError(f"{name}: a figure without `expect` proves nothing")
    verdict = "confirmed" if holds else "not confirmed"
    other_scale = _other_scale(claim, study)
    if other_scale and isinstance(claim.measure, ABSOLUTE):
        verdict = "not measurable here"
    devices = dict.fromkeys(timing.device_name for timing in figure.timings)
    return result.model_copy(
        update={
            "measured": figure.text,
            "value": figure.value if figure.value is not None and math.isfinite(figure.value) else None,
            "verdict": verdict,
            "reason": other_scale if verdict == "not measurable here" else None,
            "remark": "; ".join(filter(None, (other_scale, figure.remark, claim.remark))) or None,
            "hardware": ", ".join(devices) or None,
        }
    )


def _within(value: float | None, expected: Range) -> bool | None:
    if value is None:
        return None
    return (expected.low is None or value >= expected.low) and (expected.high is None or value <= expected.high)


def _other_scale(claim: Claim, study: Study) -> str | None:
    """Say that a figure was measured at another scale than the claim's."""
    if claim.needs.scale in (None, study.params.scale):
        return None
    return f"measured at {study.params.scale} scale, the claim is about {claim.needs.scale} scale"
