"""Why two runs differ: the first test that proves its cause, or `unknown` with what was measured."""

from dataclasses import replace
from typing import Any

import torch

from trainparity.parity.causes import RULES, Evidence, Finding, Rule
from trainparity.parity.divergence import divergence
from trainparity.parity.noise.distance import KINDS, sketches
from trainparity.parity.placement import place
from trainparity.parity.steps.difference import Difference
from trainparity.records.numbers import number
from trainparity.records.verdict import UNKNOWN, Verdict


def explain(verdict: Verdict, difference: Difference) -> Verdict:
    """Complete a `different` verdict with its first step and tensor, its cause and the evidence."""
    rule, found = diagnose(difference)
    return verdict.model_copy(
        update={
            "step": difference.step,
            "tensor": difference.first_tensor or None,
            "reason": _where(verdict, difference) if difference.first_tensor else found.why,
            "cause": rule.cause,
            "link": rule.link,
            "explanation": found.why + _diverged(difference),
            "advice": found.advice or rule.advice,
            "evidence": _plain({**found.evidence, **measured(difference)}),
        }
    )


def _where(verdict: Verdict, difference: Difference) -> str:
    """Say from where on runs differ, and how far: within the margin, too, where facts or passes tell that they do."""
    largest = max(verdict.worst, key=lambda w: w.distance_over_floor, default=None)
    margin, first = f"{number(difference.margin)} x the noise floor", f"first in {difference.first_tensor}"
    if largest is None:
        return f"different from step {difference.step} on, {first}"
    most = f"at most {number(largest.distance_over_floor)} x, in {largest.kind} {largest.tensor} at step {largest.step}"
    beyond = any(difference.beyond_margin(kind) for kind in KINDS)  # NaN is, too
    if not beyond and largest.distance_over_floor <= difference.margin:
        return f"different from step {difference.step} on, {first}; what is trained lies within {margin}: {most}"
    return f"beyond {margin} from step {difference.step} on, {first}; {most}"


def _diverged(difference: Difference) -> str:
    """Say that the other run diverged: what it does then is no cause, but may look like one."""
    said = divergence(difference.right)
    return f"; {difference.runs[1]} diverged: {said}" if said else ""


def diagnose(difference: Difference) -> tuple[Rule, Finding]:
    """Return the first rule of `RULES` whose test holds, with what it found; never a guess."""
    for rule in RULES:
        if found := rule.test(difference):
            return rule, found
    return _nothing_proved(difference)


def _nothing_proved(difference: Difference) -> tuple[Rule, Finding]:
    link, agrees = place(difference)
    left, right = difference.runs
    where = f"{right} parts from {left} in the link `{link}`" if link else "too little was recorded to place it"
    same = f"; within the floor before it: {', '.join(agrees)}" if agrees else ""
    why = f"no test proves a cause; {where}{same}"
    return replace(_UNKNOWN, link=link), Finding(why, {"equal": agrees}, advice=_advice(difference))


def _advice(difference: Difference) -> str:
    """Say how more can be seen of a run none of whose forward passes was."""
    seen = difference.pair("num_samples")
    unseen = [run for run, count in zip(difference.runs, seen, strict=True) if not count] if seen is not None else []
    if not unseen:
        return ""
    if all(bool(trace.arrays["num_samples"].any()) for trace in difference.traces):  # as of an optimizer made late
        return (
            f"no samples of {' and '.join(unseen)} were seen in this step: its passes were made before its recording "
            "began, or inside compiled code; compare what both runs give the model in it"
        )
    return (
        f"no samples of {' and '.join(unseen)} were seen: where the model is given no tensor, tell them by `samples=`; "
        "where it is called inside a function that torch.compile compiled, compile the model in place of that function"
    )


_UNKNOWN = Rule(
    UNKNOWN,
    None,
    proof="none of these",
    advice="compare the evidence below; trace every step (interval=1) and give `samples=` to see more",
    test=lambda difference: None,
)


def measured(difference: Difference) -> Evidence:
    """Return the numbers that describe any difference, whatever its cause."""
    left, right = (sketches(t, "gradient")[difference.row].flatten() for t in difference.traces)
    lengths = torch.linalg.vector_norm(left), torch.linalg.vector_norm(right)
    evidence: Evidence = {f"{kind}_distance": difference.distance(kind) for kind in KINDS}
    if (sequence := difference.pair("sequence")) is not None:
        evidence["sequence"] = int(sequence[0])
    evidence["gradient_cosine"] = float(left @ right / (lengths[0] * lengths[1]))
    evidence["gradient_norm_ratio"] = float(lengths[1] / lengths[0])
    options = sorted({name for trace in difference.traces for name in trace.arrays})
    odd = [name for name in options if name.startswith("setting/") and _differ(difference.pair(name))]
    if odd:
        evidence["options_that_differ"] = [name.removeprefix("setting/") for name in odd]
    return evidence


def _differ(values: tuple[torch.Tensor, torch.Tensor] | None) -> bool:
    return values is None or not torch.allclose(*values, rtol=1e-6, atol=0.0)


def _plain(value: Any) -> Any:
    """Write what JSON has no number for as text."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not torch.isfinite(torch.tensor(value)):
        return str(value)
    return value
