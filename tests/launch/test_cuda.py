"""The same configurations on a GPU: two ranks share it if there is but one."""

from pathlib import Path

import pytest

from trainparity import params, validation
from trainparity.data import datasets
from trainparity.environment import detect
from trainparity.launch.runs import run_configuration, run_reference
from trainparity.parity.pairs import compare_pairs

ROOT = Path(__file__).parents[2]
ON_A_GPU = ["cuda-single", "ddp", "gradaccum", "fsdp-offload", "compiled", "fsdp"]
FEW = {"train": {"max_steps": 8}, "parity": {"window": 4, "twins": 2}, "timing": {"warmup_steps": 1, "steps": 2}}


@pytest.mark.cuda
def test_the_default_configurations_are_the_same_training_on_a_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = validation.read_yaml(ROOT / "params.yaml") | {"accelerator": "cuda"}
    for section, few in FEW.items():
        content[section] |= few
    content["configs"]["fsdp"] = {"strategy": "fsdp", "world_size": 2}
    settings = params.parse(content, Path("params.yaml"))
    monkeypatch.chdir(tmp_path)
    runs, prepared, environment = Path("runs"), Path("data"), detect()
    datasets.prepare(settings.dataset, prepared, Path("downloads"))
    run_reference(settings, environment, "fp32", runs=runs, data=prepared)
    for name in ON_A_GPU:
        status = run_configuration(settings, environment, name, runs=runs, data=prepared)
        assert (status.status, status.device) == ("trained", "cuda"), (name, status.reason)
    kept = {name: pair for name, pair in settings.pairs.items() if {pair.left, pair.right} <= {"reference", *ON_A_GPU}}
    report = compare_pairs(settings.model_copy(update={"pairs": kept}), runs, Path("reports"))
    verdicts = {name: pair.verdict for name, pair in report.pairs.items()}
    assert set(verdicts.values()) <= {"bitwise", "equivalent"}, verdicts
