"""The stage `reference`: what it keeps, what it trains, and when it trains all of them again."""

import copy
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.project import ROOT
from trainparity import params, validation
from trainparity.data import datasets
from trainparity.environment import detect
from trainparity.launch.warm import warm_workers
from trainparity.pipeline.references import train_references
from trainparity.records import layout

CONTENT = validation.read_yaml(ROOT / "params.yaml") | {
    "accelerator": "cpu",
    "workload": {"name": "tests.support.mlp:Mlp"},
    "train": {"max_steps": 3, "global_batch_size": 8, "optimizer": {"name": "sgd", "lr": 0.1}},
    "parity": {"twins": 1, "window": 3},
    "timing": {"warmup_steps": 1, "steps": 2},
    "dataset": {"name": "digits", "limit": 32},
    "configs": {"a": {}, "b": {"precision": "fp64"}},
    "pairs": {},
    "parallel": None,
}
RUNS, DATA = Path("runs"), Path("data")


def trained(content: dict[str, Any]) -> dict[str, int]:
    """Run the stage as DVC does, which removes its outputs first; return when each reference was timed."""
    shutil.rmtree(RUNS / "reference", ignore_errors=True)
    settings = params.parse(content, Path("params.yaml"))
    found = train_references(settings, detect(), runs=RUNS, data=DATA)
    assert {status.status for status in found.values()} == {"trained"}
    return {name: layout.timing(RUNS, f"reference-{name}").stat().st_mtime_ns for name in found}


@pytest.fixture(scope="module", autouse=True)
def warm() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(ROOT))  # before: a process of another path is none to fork a worker from
        with warm_workers():
            yield


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, int]]:
    """A folder with references, and when each was timed."""
    folder = tmp_path_factory.mktemp("made")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        datasets.prepare(params.Digits(name="digits", limit=32), DATA, Path("downloads"))
        return folder, trained(CONTENT)


@pytest.fixture
def first(made: tuple[Path, dict[str, int]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """What was made, in a copy that is the working directory."""
    folder, times = made
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return times


def changed(**sections: Any) -> dict[str, Any]:
    return copy.deepcopy(CONTENT) | sections


@pytest.mark.slow
def test_only_what_changed_is_trained_and_a_forced_run_trains_all(
    first: dict[str, int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert set(first) == {"fp32", "fp64"}
    needed = layout.needed(RUNS, "a").read_bytes()
    with_new = trained(changed(configs=CONTENT["configs"] | {"c": {"accumulation_steps": 2}}))
    assert with_new == first and layout.needed(RUNS, "c").read_bytes() == needed
    assert capsys.readouterr().out.splitlines()[-2:] == ["reference fp32: kept", "reference fp64: kept"]
    with_reference = trained(
        changed(configs=CONTENT["configs"] | {"d": {"reference": "long"}}, references={"long": {"train": {"seed": 1}}})
    )
    assert {name: with_reference[name] for name in first} == first and "long" in with_reference
    without = trained(CONTENT)
    assert without == first
    assert not layout.state(RUNS, "reference-long").exists() and not layout.needed(RUNS, "d").exists()
    forced = trained(CONTENT)
    assert all(forced[name] > first[name] for name in first)
    assert layout.needed(RUNS, "a").read_bytes() == needed  # the same bits again


KEPT = Path(".trainparity/kept/runs")


def damaged_mark() -> None:
    (layout.report(KEPT, "reference-fp32") / "made-from.json").write_bytes(b"\xff\xfe{")


def cut_trace() -> None:
    trace = layout.state(KEPT, "reference-fp32") / "trace.safetensors"
    content = trace.read_bytes()
    trace.unlink()  # the stage's own may be a link to it
    trace.write_bytes(content[: len(content) // 2])
    layout.needed(KEPT, "a").write_text("{")


def test_a_damaged_one_is_trained_again(first: dict[str, int]) -> None:
    for damage in (damaged_mark, cut_trace):
        damage()
        again = trained(CONTENT)
        assert again["fp32"] > first["fp32"] and again["fp64"] == first["fp64"]
        first = again


def test_a_batch_that_grew_beyond_the_data_is_refused_before_anything_trains(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The dataset is not prepared again for another batch."""
    monkeypatch.chdir(tmp_path)
    datasets.prepare(params.Digits(name="digits", limit=32), DATA, Path("downloads"))
    settings = params.parse(changed(train=CONTENT["train"] | {"global_batch_size": 40}), Path("params.yaml"))
    with pytest.raises(validation.ParamsError, match=r"^params\.yaml: train\.global_batch_size: 40, but there are 32"):
        train_references(settings, detect(), runs=RUNS, data=DATA)
    assert not RUNS.exists()
