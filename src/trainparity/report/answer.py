"""One comparison in plain words, as `trainparity compare` prints it."""

from typing import Any

from rich.console import Console
from rich.text import Text

from trainparity.records.verdict import Verdict
from trainparity.report.format import exact, number
from trainparity.report.styles import STYLES


def show(answer: Verdict, console: Console) -> None:
    """Print the verdict, and of a difference where it begins, its cause, what to change and the evidence."""
    console.print(
        Text.assemble(f"{answer.left} / {answer.right}: ", (answer.verdict, STYLES.get(answer.verdict, "yellow")))
    )
    if answer.distance_over_floor is not None:
        most, margin = number(answer.distance_over_floor), number(answer.margin)
        line = f"  at most {most} x the noise floor (up to {margin} x is rounding)"
        console.print(Text(f"{line}, over {answer.steps_compared} traced steps"))
    if answer.resolution is not None:
        seen = number(answer.resolution)
        console.print(Text(f"  a relative error of the gradient beyond {seen} would have been `different`"))
    if not answer.calibrated and answer.distance_over_floor is not None:
        text = "  uncalibrated: no twins, so the floor is an analytic bound; record some with TRAINPARITY_TWIN=1, 2, 3"
        console.print(Text(text, style="yellow"))
    if answer.reason:
        console.print(Text(f"  {answer.reason}"))
    if answer.cause:
        console.print(Text.assemble("  cause: ", (answer.cause, "bold"), f": {answer.explanation}"))
        console.print(Text(f"  to change: {answer.advice}"))
        if answer.weights != "different":
            console.print(Text(f"  gradients, updates and weights: {answer.weights}"))
        for line in evidence_lines(answer.evidence):
            console.print(Text(f"    {line}", style="dim"))


def evidence_lines(evidence: dict[str, Any]) -> list[str]:
    """Return a line for each number of the evidence."""
    return [f"{name.replace('_', ' ')}: {_value(value)}" for name, value in evidence.items()]


def _value(value: Any) -> str:
    if isinstance(value, list):
        shown = ", ".join(_value(item) for item in value[:8])
        return shown + (", ..." if len(value) > 8 else "")
    return exact(value) if isinstance(value, float) else str(value)
