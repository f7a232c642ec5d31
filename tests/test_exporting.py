"""`trainparity export`, read back by the tools themselves."""

import importlib.util
import json
import sys
from pathlib import Path

import pytest

from tests.support import synthetic
from trainparity import cli
from trainparity.exporting import export
from trainparity.parity.compare import compare_folders, describe_folders


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("runs")
    synthetic.trace().save(folder / "a")
    for number, twin in enumerate(synthetic.twins(), 1):
        twin.save(folder / "a/twins" / str(number))
    synthetic.trace(weights=(2.0,)).save(folder / "b")
    return folder / "a", folder / "b"


def exported(*arguments: object) -> int | str | None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["trainparity", "export", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            cli.main()
    return ended.value.code


def test_any_writer_gets_the_verdict_and_each_steps_largest_distance(runs: tuple[Path, Path]) -> None:
    scalars: dict[str, dict[int, float]] = {}
    texts: dict[str, str] = {}

    class Writer:
        def scalar(self, name: str, value: float, step: int) -> None:
            scalars.setdefault(name, {})[step] = value

        def text(self, name: str, text: str) -> None:
            texts[name] = text

    verdict = compare_folders(*runs)
    export({"pair": verdict}, {"pair": describe_folders(*runs)}, Writer())
    assert (texts["pair/verdict"], texts["pair/cause"]) == ("different", "loss-normalisation")
    assert scalars["pair/same training"].popitem()[1] == 0
    [worst] = [worst for worst in verdict.worst if worst.kind == "gradient"]
    assert scalars["pair/gradient"][worst.step] == pytest.approx(worst.distance_over_floor, rel=1e-3)
    assert len(scalars["pair/gradient"]) == verdict.steps_compared


def test_tensorboard_reads_it(runs: tuple[Path, Path], tmp_path: Path) -> None:
    events = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    assert exported(*runs, "--tensorboard", tmp_path / "logs") == 0
    found = events.EventAccumulator(str(tmp_path / "logs")).Reload()
    worst = {worst.kind: worst for worst in compare_folders(*runs).worst}["gradient"]
    assert {event.step: event.value for event in found.Scalars("a-b/gradient")}[worst.step] == pytest.approx(
        worst.distance_over_floor, rel=1e-3
    )
    assert b"different" in found.Tensors("a-b/verdict/text_summary")[0].tensor_proto.string_val[0]


def test_mlflow_reads_it(runs: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tracking = pytest.importorskip("mlflow.tracking")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    answer, store = tmp_path / "answer.json", f"file:{tmp_path}/mlruns"
    verdict = compare_folders(*runs)
    verdict.write(answer)
    assert exported(answer, "--mlflow", store) == 0
    assert exported(*runs, "--mlflow", store) == 0
    client = tracking.MlflowClient(tracking_uri=store)
    experiment = client.get_experiment_by_name("trainparity").experiment_id
    found = {run.info.run_name: run for run in client.search_runs([experiment])}
    assert found.keys() == {"answer", "a-b"}
    assert found["answer"].data.tags["answer/cause"] == "loss-normalisation"
    assert found["answer"].info.status == "FINISHED"
    assert len(client.get_metric_history(found["a-b"].info.run_id, "a-b/gradient")) == verdict.steps_compared


def test_what_cannot_be_written_is_said(
    runs: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert exported(*runs) == 2
    assert "nothing to write to" in capsys.readouterr().err
    (tmp_path / "answer.json").write_text(json.dumps({"verdict": "fine"}))
    assert exported(tmp_path / "answer.json", "--tensorboard", tmp_path / "logs") == 2
    assert "not the record expected here: left" in capsys.readouterr().err
    if importlib.util.find_spec("mlflow"):
        assert exported(*runs, "--mlflow", "nothing://there") == 2
        assert capsys.readouterr().err.startswith("--mlflow nothing://there: ")
        monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
        assert exported(*runs, "--mlflow", "http://127.0.0.1:9") == 2
        assert capsys.readouterr().err.startswith("trainparity: writing to http://127.0.0.1:9; a server that can't be")
