"""The same figures as CSV: one row per pair, one per run, and the curves that `dvc plots` draws."""

from trainparity.records.base import csv_text
from trainparity.records.claims import ClaimReport
from trainparity.report.artifacts import Artifacts, Run
from trainparity.report.columns import pairs, runs
from trainparity.report.columns.claims import CLAIMS
from trainparity.report.columns.column import to_csv
from trainparity.report.columns.pairs import PAIRS
from trainparity.report.columns.runs import RUNS
from trainparity.report.schema import Summary


def parity(summary: Summary) -> str:
    """Return one row per pair; an empty cell is a null."""
    return to_csv(PAIRS, pairs.rows(summary))


def timing(summary: Summary) -> str:
    """Return one row per reference and configuration, run or not; an empty cell is a null."""
    return to_csv(RUNS, runs.rows(summary))


def claims(report: ClaimReport) -> str:
    """Return one row per claim."""
    return to_csv(CLAIMS, report.results)


def loss_curves(artifacts: Artifacts) -> str:
    """Return configuration,step,loss of every trained run."""
    rows = ((name, step, loss) for name, run in _all_runs(artifacts).items() for step, loss in run.losses)
    return csv_text(("configuration", "step", "loss"), rows)


def step_times(artifacts: Artifacts) -> str:
    """Return configuration,step,step_ms of every timed step; emulated runs have no times of their own."""
    rows = (
        (name, step, value)
        for name, run in _all_runs(artifacts).items()
        if run.timing and not run.status.emulated
        for step, value in enumerate(run.timing.step_ms)
    )
    return csv_text(("configuration", "step", "step_ms"), rows)


def _all_runs(artifacts: Artifacts) -> dict[str, Run]:
    """Return references, then configurations, by their folder's name."""
    return {run.status.run: run for run in artifacts.references.values()} | artifacts.configurations
