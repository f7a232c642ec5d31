"""The same figures as CSV: one row per pair, one per run, and the curves that `dvc plots` draws."""

import csv
import io
from collections.abc import Iterable, Mapping
from typing import Any

from trainparity.records.claims import ClaimReport
from trainparity.report.artifacts import Artifacts, Run
from trainparity.report.schema import RunSummary, Summary

PARITY_COLUMNS = (
    *("pair", "left", "right", "verdict", "distance_over_floor", "step", "tensor", "ranks_agree"),
    *("weights", "reason", "cause", "explanation", "advice"),
)
CLAIM_COLUMNS = (*("name", "statement", "published", "measured", "value", "verdict", "reason", "remark", "hardware"),)
TIMING_COLUMNS = (
    *("configuration", "status", "device", "device_name", "emulated", "strategy", "world_size"),
    *("accumulation", "precision", "compile", "step_ms_median", "step_ms_p10", "step_ms_p90"),
    *(
        "wait_ms",
        "samples_per_s",
        "speedup",
        "speedup_low",
        "speedup_high",
        "peak_memory_mib",
        "host_mib",
        "device_allocated_mib",
    ),
    *("device_reserved_mib", "warmup_s", "compile_s", "graphs", "graph_breaks", "flops_per_s"),
    *("peak_flops_fraction", "gpu_percent", "temperature_c", "energy_j", "measured_at", "fingerprint"),
)


def parity(summary: Summary) -> str:
    """Return one row per pair; an empty cell is a null."""
    rows = ({"pair": name} | pair.model_dump() for name, pair in summary.pairs.items())
    return _table(PARITY_COLUMNS, rows)


def timing(summary: Summary) -> str:
    """Return one row per reference and configuration, run or not; an empty cell is a null."""
    runs = {run.reference: run for run in summary.references.values()} | summary.configurations
    return _table(TIMING_COLUMNS, (_timing_row(name, run) for name, run in runs.items()))


def claims(report: ClaimReport) -> str:
    """Return one row per claim."""
    return _table(CLAIM_COLUMNS, (result.model_dump() for result in report.results))


def loss_curves(artifacts: Artifacts) -> str:
    """Return configuration,step,loss of every trained run."""
    rows = (
        {"configuration": name, "step": step, "loss": loss}
        for name, run in _all_runs(artifacts).items()
        for step, loss in run.losses
    )
    return _table(("configuration", "step", "loss"), rows)


def step_times(artifacts: Artifacts) -> str:
    """Return configuration,step,step_ms of every timed step; emulated runs have no times of their own."""
    rows = (
        {"configuration": name, "step": step, "step_ms": value}
        for name, run in _all_runs(artifacts).items()
        if run.timing and not run.status.emulated
        for step, value in enumerate(run.timing.step_ms)
    )
    return _table(("configuration", "step", "step_ms"), rows)


def _all_runs(artifacts: Artifacts) -> dict[str, Run]:
    """Return references, then configurations, by their folder's name."""
    return {run.status.run: run for run in artifacts.references.values()} | artifacts.configurations


def _timing_row(name: str, run: RunSummary) -> dict[str, Any]:
    """Flatten one run into the columns of the timing table."""
    row = run.model_dump()
    for prefix, column in (("step_ms_", "step_ms"), ("", "memory"), ("", "utilisation")):
        row |= {prefix + key: value for key, value in (row.pop(column) or {}).items()}
    ratio = row.pop("speedup") or {}
    return row | {
        "configuration": name,
        "speedup": ratio.get("ratio"),
        "speedup_low": ratio.get("low"),
        "speedup_high": ratio.get("high"),
    }


def _table(columns: tuple[str, ...], rows: Iterable[Mapping[str, Any]]) -> str:
    """Write rows as CSV, the named columns only."""
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()
