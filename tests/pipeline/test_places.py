"""What a pipeline finds in its places when it first runs."""

from pathlib import Path

import pytest
import yaml

from trainparity import starter
from trainparity.cli.pipeline import run_stages
from trainparity.errors import UserError
from trainparity.pipeline.places import METRICS, PLACES, VALID, check_first


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    starter.write(tmp_path, dvc=False, force=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def put(name: str) -> None:
    Path(name).parent.mkdir(parents=True, exist_ok=True)
    Path(name).write_text("mine")


def test_the_places_are_those_of_the_pipeline_that_init_writes() -> None:
    stages = yaml.safe_load((Path(starter.__file__).parent / "dvc.yaml").read_text())["stages"]
    every = [stage.get("do", stage) for stage in stages.values()]
    outs = {out.split("/${")[0] for stage in every for out in (*stage.get("outs", ()), *stage.get("metrics", ()))}
    assert outs == {str(VALID), *PLACES, METRICS}


@pytest.mark.parametrize("mine", ["data/prepared/train.npy", "reports/report.md", "runs/state/gradaccum/best.pt"])
def test_what_lies_there_before_the_first_run_is_named_and_stays(
    mine: str, project: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    put(mine)
    assert run_stages([["validate"]]) == 2
    assert (
        f"{next(place for place in PLACES if mine.startswith(place))}: there before the pipeline"
        in capfd.readouterr().err
    )
    assert Path(mine).read_text() == "mine" and not VALID.exists()


def test_what_lies_beside_is_nobodys_concern_and_an_earlier_run_is_known(project: Path) -> None:
    for name in ("data/measurements.csv", "reports/notes.txt", "runs/mine.pt", METRICS, "runs/state/.gitignore"):
        put(name)
    Path("reports/figures").mkdir()
    assert run_stages([["validate"]]) == 0
    put("reports/report.md")  # by the pipeline
    assert run_stages([["validate"]]) == 0


def test_under_dvc_its_lock_tells_of_earlier_runs_and_metrics_are_a_place(project: Path) -> None:
    put("dvc.yaml")
    check_first()
    put(METRICS)
    with pytest.raises(UserError, match=rf"^{METRICS}: there before the pipeline has ever run here"):
        check_first()
    Path("dvc.lock").write_text(f"stages:\n  validate:\n    outs:\n    - path: {VALID}\n")
    check_first()
