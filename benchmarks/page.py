"""One page of all targets: `benchmarks/results/README.md` with its pictures, from the files beside it.

A target stands with what was measured, where and when, and, where it is missed, with what limits it.
"""

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import results_file
from pairs import Target

from trainparity.records.files import write_text
from trainparity.records.numbers import number
from trainparity.report import markdown, words
from trainparity.report.schema import Summary
from trainparity.report.speedup import Ratio
from trainparity.report.templating import environment

HEAD = """# Figures

Written by `make bench` from the files of this folder, a column for each machine. A ratio is of two things timed in
turns, step by step, with the sign test's 95 % interval; a figure without one was counted. **Missed** targets have what
limits them below.

"""

Entry = tuple[dict[str, Any], Target]
"""A result file's facts, and one of its targets."""


def main() -> None:
    """Write page and pictures."""
    found = entries(results_file.RESULTS)
    for device in devices(found):
        own = [entry for entry in found if entry[0]["device"] == device]
        write_text(results_file.RESULTS / _picture_of(device), picture(own, device))
    write_text(results_file.RESULTS / "README.md", page(found) + on_a_gpu(results_file.RESULTS))
    print(results_file.RESULTS / "README.md")


def entries(folder: Path) -> list[Entry]:
    """Return every target of a folder's result files."""
    files = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.json"))]
    return [(facts, _target(record)) for facts in files for record in facts.get("targets", ())]


def devices(found: Sequence[Entry]) -> list[str]:
    """Return the machines that something was measured on."""
    return sorted({facts["device"] for facts, _ in found})


def page(found: Sequence[Entry]) -> str:
    """Return the page as Markdown: a row for each target, a column for each machine, a line for each file."""
    columns = devices(found)
    cells: dict[tuple[str, str, str], dict[str, str]] = {}
    for facts, target in found:
        cells.setdefault((target.name, target.what, _wanted(target)), {})[facts["device"]] = _measured(target)
    head = ["target", "what", "wanted", *columns]
    rows = [_row([*target, *(measured.get(device, "") for device in columns)]) for target, measured in cells.items()]
    missed = [
        f"- **{target.name}**, {facts['device']}: {target.limited_by}." for facts, target in found if not target.reached
    ]
    limits = ["", "## What limits those that are missed", "", *missed] if missed else []
    pictures = [f"\n![how far each target is reached, {device}]({_picture_of(device)})" for device in columns]
    lines = [_row(head), _row(["---"] * len(head)), *rows, *limits, *pictures, *_where(found)]
    return HEAD + "\n".join(lines) + "\n"


def on_a_gpu(folder: Path) -> str:
    """Return the default pipeline as `make gpu` ran it, failures too; nothing where it has not."""
    path = folder / "gpu-summary.json"
    if not path.exists():
        return ""
    ran = Summary.read(path)
    where = f"{words.environment_sentence(ran)}; {words.dates_sentence(ran)}"
    return "\n".join(["", "## The default pipeline on a GPU", "", where, "", markdown.summary(ran).rstrip()]) + "\n"


def _where(found: Sequence[Entry]) -> list[str]:
    """Return where and when each file was measured."""
    files = {(facts["benchmark"], facts["device"]): facts for facts, _ in found}
    where = [
        [
            f["benchmark"],
            f"{f['device']}, {f['cores']} cores, {f['threads']} thread{'s' * (f['threads'] > 1)}",
            f["torch"],
            f["python"],
            f["date"][:10],
        ]
        for f in files.values()
    ]
    head = ["benchmark", "machine", "torch", "Python", "date"]
    return ["", "## Where and when", "", _row(head), _row(["---"] * len(head)), *map(_row, where)]


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _picture_of(device: str) -> str:
    return f"targets-{results_file.as_file_name(device)}.svg"


def picture(found: Sequence[Entry], device: str) -> str:
    """Return a machine's bars as SVG, on a logarithmic axis: right of the mark a target is reached."""
    margins = [target.margin for _, target in found]
    ends = [value for margin in margins for value in margin if value > 0] + [1.0]
    least, most = math.log2(min(ends)) - 0.2, math.log2(max(ends)) + 0.2

    def x(value: float) -> float:
        return round(220 + 300 * (math.log2(max(value, min(ends))) - least) / (most - least), 1)

    title = f"{device}: how far each target is surpassed, with 95 % interval (logarithmic; dashed: just reached)"
    rows = [
        (target.name, margin.low, margin.ratio, margin.high, f"{_wanted(target)}: {number(target.found.ratio)}")
        for (_, target), margin in zip(found, margins, strict=True)
    ]
    return environment().get_template("bars.svg.j2").render(title=title, rows=rows, mark=1.0, x=x)


def _target(record: dict[str, Any]) -> Target:
    return Target(**record | {"found": Ratio(*record["found"])})


def _wanted(target: Target) -> str:
    return f"≥ {number(target.at_least)}" if target.at_least is not None else f"≤ {number(target.at_most or 0)}"


def _measured(target: Target) -> str:
    ratio, low, high = map(number, target.found)
    figure = ratio if target.found.low == target.found.high else f"{ratio} ({low} to {high})"
    return figure if target.reached else f"**missed** {figure}"


if __name__ == "__main__":
    main()
