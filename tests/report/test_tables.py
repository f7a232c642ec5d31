import csv
import io

import pytest

from trainparity.report import tables
from trainparity.report.artifacts import Artifacts
from trainparity.report.schema import Summary


def rows(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_parity_has_a_row_per_pair(built: Summary) -> None:
    found = {row["pair"]: row for row in rows(tables.parity(built))}
    assert list(found) == list(built.pairs)
    assert found["lr-doubled"]["verdict"] == "different"
    assert found["lr-doubled"]["step"] == "0"
    assert found["ddp-gradaccum"]["left"] == "ddp"
    assert found["mps"]["distance_over_floor"] == ""


def test_timing_has_a_row_per_run_and_all_columns_are_filled_for_some(built: Summary) -> None:
    found = {row["configuration"]: row for row in rows(tables.timing(built))}
    assert list(found) == ["reference-fp32", *built.configurations]
    ddp = built.configurations["ddp"]
    assert ddp.figures and ddp.speedup
    assert float(found["ddp"]["step_ms_median"]) == ddp.figures.step_ms.median
    assert float(found["ddp"]["speedup_low"]) == ddp.speedup.low
    assert float(found["ddp"]["host_mib"]) == 612.5
    assert found["dp"]["speedup"] == found["mps"]["step_ms_median"] == ""
    only_on_a_gpu = {
        "device_allocated_mib",
        "device_reserved_mib",
        "gpu_percent",
        "temperature_c",
        "energy_j",
    }
    for column in set(found["ddp"]) - only_on_a_gpu:
        assert any(row[column] for row in found.values()), column


def test_loss_curves_are_long_and_complete(read: Artifacts) -> None:
    found = rows(tables.loss_curves(read))
    assert {row["configuration"] for row in found} == {
        *("reference-fp32", "cpu", "dp", "ddp", "gradaccum", "compiled", "lr-doubled")
    }
    assert [row["step"] for row in found if row["configuration"] == "ddp"] == [str(step) for step in range(40)]


def test_step_times_leave_emulated_runs_out(read: Artifacts) -> None:
    found = rows(tables.step_times(read))
    assert "dp" not in {row["configuration"] for row in found}
    timing = read.configurations["ddp"].timing
    assert timing
    times = [float(row["step_ms"]) for row in found if row["configuration"] == "ddp"]
    assert times == pytest.approx(timing.step_ms)
