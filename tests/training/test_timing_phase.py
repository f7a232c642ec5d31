from pathlib import Path

from tests.support.runs import prepared, spec, trainer_of
from trainparity.params import Timing
from trainparity.training import timing_phase


def operations(folder: Path, norm: str) -> float | None:
    settings = spec(folder, prepared(folder), "run", workload="resnet", options={"width": 8, "norm": norm})
    return timing_phase.measure(
        settings, Timing(warmup_steps=1, steps=2), trainer_of(settings), lambda: None
    ).flops_per_step


def test_operations_are_counted_where_batchnorm_sees_one_value_a_sample(tmp_path: Path) -> None:
    """The last stage's feature maps of 8x8 images are 1x1; norms themselves count nothing."""
    found = operations(tmp_path, "batch")
    assert found and found == operations(tmp_path, "group")
