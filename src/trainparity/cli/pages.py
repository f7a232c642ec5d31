"""What `--html` writes: the page of one command's verdicts, whole or not at all."""

import shlex
import sys
from collections.abc import Mapping
from pathlib import Path

from trainparity import extras
from trainparity.records import layout
from trainparity.records.check import CheckReport
from trainparity.records.detail import Detail
from trainparity.records.files import write_text
from trainparity.records.verdict import Verdict
from trainparity.running import secrecy


def require(path: Path | None) -> None:
    """Stop before anything trains if a page is wanted and can't be made.

    Raises:
        MissingExtra: the extra `report` is not installed.
    """
    if path:
        extras.require("jinja2")


def write_comparison(path: Path, verdict: Verdict, details: Mapping[str, Detail]) -> None:
    """Write the page of the verdict on two recorded runs, with what stands behind it by model."""
    title = f"{verdict.left} / {verdict.right}"
    _write(path, {title: verdict}, {title: details}, "compare")


def write_check(path: Path, report: CheckReport, folder: Path) -> None:
    """Write the page of a check, whose runs are in `folder`."""
    from trainparity.parity.compare import describe_folders  # imports torch

    runs = folder / "runs"
    details = {
        name: describe_folders(layout.state(runs, verdict.left), layout.state(runs, verdict.right))
        for name, verdict in report.results.items()
    }
    _write(path, report.results, details, f"check {report.workload}")


def _write(
    path: Path, verdicts: Mapping[str, Verdict], details: Mapping[str, Mapping[str, Detail]], subject: str
) -> None:
    from trainparity.report import origin, page  # imports jinja2

    command = shlex.join(["trainparity", *secrecy.words(sys.argv[1:])])
    write_text(path, page.compared(verdicts, details, origin.of(command), command=subject))
