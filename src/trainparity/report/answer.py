"""One comparison in plain words, as `trainparity compare` prints it."""

from rich.console import Console
from rich.text import Text

from trainparity.records.numbers import number
from trainparity.records.verdict import Verdict
from trainparity.report.format import evidence
from trainparity.report.styles import STYLES


def show(answer: Verdict, console: Console) -> None:
    """Print the verdict, and of a difference where it begins, its cause, what to change and the evidence."""
    console.print(
        Text.assemble(f"{answer.left} / {answer.right}: ", (answer.verdict, STYLES.get(answer.verdict, "yellow")))
    )
    if answer.distance_over_floor is not None:
        most, margin = number(answer.distance_over_floor), number(answer.margin)
        line = f"  at most {most} x the noise floor (up to {margin} x is rounding"
        if answer.again_in_float64:
            line += "; beyond it, a run in float64 decided"
        elif answer.verdict == "different" and answer.distance_over_floor <= answer.margin:
            line += "; what is said below is no rounding, however small"
        console.print(Text(f"{line}), over {answer.extent}"))
    if answer.lies_far and not answer.confirmation:
        seen = f"right runs seldom lie beyond {number(answer.furthest_right)} times"
        console.print(Text(f"  {seen}: {_FAR}", style="yellow"))
    for line in answer.not_compared:
        console.print(Text(f"  {line}", style="yellow"))
    if answer.confirmation and not answer.cause:
        console.print(Text(f"  second opinion: {answer.confirmation}"))
    if answer.resolution is not None:
        seen = number(answer.resolution)
        console.print(Text(f"  a relative error of the gradient beyond {seen} would have been `different`"))
        for one in answer.resolutions:
            text = f"    {one.kind}: {number(one.whole)}; of its weakest tensor, {one.tensor}: {number(one.weakest)}"
            console.print(Text(text, style="dim"))
    if not answer.calibrated and answer.distance_over_floor is not None and answer.verdict != "bitwise":
        text = "  uncalibrated: no twins, so the floor is an analytic bound; record some with TRAINPARITY_TWIN=1, 2, 3"
        console.print(Text(text, style="yellow"))
    if answer.reason and answer.reason != answer.explanation:
        console.print(Text(f"  {answer.reason}"))
    if answer.advice and not answer.cause:
        console.print(Text(f"  to know more: {answer.advice}"))
    show_cause(answer, console)
    if answer.environment:
        look = "look here first: " if answer.cause in _OF_THE_ENVIRONMENT else ""
        console.print(Text(f"  {look}the runs did not compute alike with", style="yellow" if look else ""))
        for line in answer.environment:
            console.print(Text(f"    {line}", style="dim"))


_FAR = "record more twins, or let float64 tell, as `trainparity ab` and `trainparity check` do"
"""What to do with an `equivalent` that lies further than most right runs do."""

_OF_THE_ENVIRONMENT = ("precision", "randomness", "forward", "unknown")
"""Causes that another version, device or flag may be behind."""


def show_cause(verdict: Verdict, console: Console) -> None:
    """Print the cause of a difference, what to change, what confirmed it and the evidence; nothing without a cause."""
    if not verdict.cause:
        return
    of = f" in the model {verdict.model}" if verdict.model else ""
    lines = [
        Text.assemble(f"  cause{of}: ", (verdict.cause, "bold"), f": {verdict.explanation}"),
        Text(f"  to change: {verdict.advice}"),
    ]
    if verdict.weights != "different":
        lines.append(Text(f"  gradients, updates and weights: {verdict.weights}"))
    if verdict.confirmation:
        lines.append(Text(f"  second opinion: {verdict.confirmation}"))
    if verdict.operator:
        lines.append(Text(f"  operator: {verdict.operator.sentence}"))
    if verdict.bisection:
        lines.append(Text(f"  settings: {verdict.bisection.sentence}"))
    for name, value in verdict.evidence.items():
        lines.append(Text(f"    {name.replace('_', ' ')}: {evidence(value)}", style="dim"))
    for line in lines:
        console.print(line, soft_wrap=True)
