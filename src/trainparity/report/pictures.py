"""Bars as SVG files, for documents in which no script runs: the report in Markdown, a comment on a change."""

import math
from collections.abc import Sequence

from trainparity.records.numbers import number
from trainparity.records.timing import StepParts
from trainparity.records.verdict import JUDGED
from trainparity.report.format import span
from trainparity.report.format import speedup as speedup_text
from trainparity.report.schema import Summary
from trainparity.report.templating import environment

Bar = tuple[str, float, float, float, str]
"""Name, low, middle, high and text of a bar."""

_LEFT, _RIGHT = 220, 520
"""Where the axis begins and ends, in the picture's units."""


def figures(summary: Summary) -> dict[str, str]:
    """Return the pictures of a pipeline by their files' names; one without a bar is left out."""
    found = {
        "distance.svg": _svg("Distance over the noise floor, at most (logarithmic; dashed: the margin)",
                             _distances(summary), math.log10(1 + summary.margin)),
        "speedup.svg": _svg("Speed-up over the reference, with its 95 % interval", speedups(summary), 1.0),
        "step_time.svg": _svg("Milliseconds per optimizer step, 10th to 90th percentile", step_times(summary), 0.0),
    }  # fmt: skip
    return {name: picture for name, picture in found.items() if picture}


def speedups(summary: Summary) -> list[Bar]:
    """Return the speed-ups that may be shown."""
    found = ((name, run.speedup) for name, run in summary.configurations.items())
    return [(name, s.low, s.ratio, s.high, speedup_text(s)) for name, s in found if s]


def step_times(summary: Summary) -> list[Bar]:
    """Return the step times of the runs that really ran, references first."""
    every = {run.reference: run for run in summary.references.values()} | summary.configurations
    timed = {name: run.figures.step_ms for name, run in every.items() if run.figures and not run.status.emulated}
    return [
        (name, t.p10, t.median, t.p90, f"{number(t.median)} ms ({span(t.p10, t.p90)})") for name, t in timed.items()
    ]


def step_parts(summary: Summary) -> list[tuple[str, StepParts | None, float]]:
    """Return where the time of a step goes, for the runs that really ran, and how long its bar is, as a percentage."""
    every = {run.reference: run for run in summary.references.values()} | summary.configurations
    shown = {name: run.timing.parts for name, run in every.items() if run.timing and not run.status.emulated}
    wholes = {name: sum(ms or 0.0 for ms in parts.model_dump().values()) for name, parts in shown.items() if parts}
    longest = max(wholes.values(), default=0.0) or 1.0
    return [(name, parts, 100 * wholes.get(name, 0.0) / longest) for name, parts in shown.items()]


def _distances(summary: Summary) -> list[Bar]:
    judged = [(pair, pair.distance_over_floor or 0.0) for pair in summary.pairs.values() if pair.verdict in JUDGED]
    return [
        (f"{pair.left} / {pair.right}", 0.0, length, length, f"{pair.verdict}, {number(most)} ×")
        for pair, most in judged
        for length in [math.log10(1 + most)]
    ]


def _svg(title: str, rows: Sequence[Bar], mark: float) -> str | None:
    if not rows:
        return None
    end = 1.05 * max(mark, *(high for _, _, _, high, _ in rows)) or 1.0

    def x(value: float) -> float:
        return round(_LEFT + (_RIGHT - _LEFT) * value / end, 1)

    return environment().get_template("bars.svg.j2").render(title=title, rows=rows, mark=mark, x=x)
