"""One page of all targets: `benchmarks/results/README.md` with its picture, from the files beside it.

A target stands with what was measured, where and when, and, where it is missed, with what limits it.
"""

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import results_file
from pairs import Target

from trainparity.records.base import write_text
from trainparity.records.numbers import number
from trainparity.report.speedup import Ratio
from trainparity.report.templating import environment

HEAD = """# Figures

Written by `make bench` from the files of this folder. A ratio is of two things timed in turns, step by step, with the
sign test's 95 % interval; a figure without one was counted.

![how far each target is reached](targets.svg)

| target | what | wanted | measured | |
|---|---|---|---|---|
"""

Entry = tuple[dict[str, Any], Target]
"""A result file's facts, and one of its targets."""


def main() -> None:
    """Write page and picture."""
    found = entries(results_file.RESULTS)
    write_text(results_file.RESULTS / "README.md", page(found))
    write_text(results_file.RESULTS / "targets.svg", picture(found))
    print(results_file.RESULTS / "README.md")


def entries(folder: Path) -> list[Entry]:
    """Return every target of a folder's result files."""
    files = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.json"))]
    return [(facts, _target(record)) for facts in files for record in facts.get("targets", ())]


def page(found: Sequence[Entry]) -> str:
    """Return the page as Markdown: a row for each target, a line for each file."""
    rows = [
        f"| {t.name} | {t.what} | {_wanted(t)} | {_measured(t.found)} | {'reached' if t.reached else '**missed**'} |"
        for _, t in found
    ]
    missed = [f"- **{target.name}**: {target.limited_by}." for _, target in found if not target.reached]
    files = {facts["benchmark"] + facts["device"]: facts for facts, _ in found}
    where = [
        f"| {f['benchmark']} | {f['device']}, {f['cores']} cores, {f['threads']} thread{'s' * (f['threads'] > 1)} | "
        f"{f['torch']} | {f['python']} | {f['date'][:10]} |"
        for f in files.values()
    ]
    limits = ["", "## What limits those that are missed", "", *missed] if missed else []
    measured = ["", "## Where and when", "", "| benchmark | machine | torch | Python | date |", "|---|---|---|---|---|"]
    return HEAD + "\n".join([*rows, *limits, *measured, *where]) + "\n"


def picture(found: Sequence[Entry]) -> str:
    """Return bars as SVG, on a logarithmic axis: right of the mark a target is reached."""
    margins = [target.margin for _, target in found]
    ends = [value for margin in margins for value in margin if value > 0] + [1.0]
    least, most = math.log2(min(ends)) - 0.2, math.log2(max(ends)) + 0.2

    def x(value: float) -> float:
        return round(220 + 300 * (math.log2(max(value, min(ends))) - least) / (most - least), 1)

    title = "How far each target is surpassed, with its 95 % interval (logarithmic; dashed: just reached)"
    rows = [
        (target.name, margin.low, margin.ratio, margin.high, f"{_wanted(target)}: {number(target.found.ratio)}")
        for (_, target), margin in zip(found, margins, strict=True)
    ]
    return environment().get_template("bars.svg.j2").render(title=title, rows=rows, mark=1.0, x=x)


def _target(record: dict[str, Any]) -> Target:
    return Target(**record | {"found": Ratio(*record["found"])})


def _wanted(target: Target) -> str:
    return f"≥ {number(target.at_least)}" if target.at_least is not None else f"≤ {number(target.at_most or 0)}"


def _measured(found: Ratio) -> str:
    ratio, low, high = map(number, found)
    return ratio if found.low == found.high else f"{ratio} ({low} to {high})"


if __name__ == "__main__":
    main()
