"""How far the pipeline is, and how long it will take: by what its stages took before."""

import hashlib
from pathlib import Path

import pytest

from tests.pipeline.test_turns import of, params, plan  # noqa: F401 (a fixture)
from trainparity.params import Params
from trainparity.pipeline import plans, schedule
from trainparity.pipeline.schedule import Seconds
from trainparity.validation import ParamsError

DVC = """\
stages:
  probe: {cmd: x}
  prepare: {cmd: x}
  reference: {cmd: x}
  train: {foreach: "${configs}", do: {cmd: x}}
  compare: {cmd: x}
  report: {cmd: x}
"""


def took(**seconds: float) -> None:
    last = {name.replace("_", "/"): value for name, value in seconds.items()}
    Seconds(last=last).write(Path(".trainparity/seconds.json"))


@pytest.mark.usefixtures("params")
def test_each_stage_says_its_number_and_the_time_of_all_that_is_left(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(schedule.WHOLE, "1")
    took(reference=90, train_ddp=200, report=4)
    schedule.expect(["reference", "train/ddp", "train/cpu", "report"])
    for name in ("reference", "validate", "train/ddp", "train/ddp", "train/cpu", "report"):
        with schedule.stage(name):
            pass
    assert capsys.readouterr().err.splitlines() == [
        "stage 1 of 4: reference; about 8 min left",
        "stage 2 of 4: train ddp; about 7 min left",  # a container's stage inside of the host's says nothing more
        "stage 3 of 4: train cpu; about 4 s left",  # by what ddp has just taken
        "stage 4 of 4: report; about 4 s left",
    ]


@pytest.mark.usefixtures("params")
def test_what_nobody_knows_is_not_estimated(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    schedule.expect(["reference", "report"])
    with schedule.stage("reference"):  # a part of the pipeline: silent
        pass
    monkeypatch.setenv(schedule.WHOLE, "1")
    (Path(".trainparity/seconds.json")).unlink()
    with schedule.stage("report"):
        pass
    assert capsys.readouterr().err == "stage 1 of 2: report\n"
    took(report=3700)
    assert schedule.seconds(["report"]) == 3700 and schedule.seconds(["prepare", "report"]) is None
    assert [schedule.duration(seconds) for seconds in (0.2, 29, 95, 3700)] == ["1 s", "29 s", "2 min", "1 h 2 min"]


@pytest.mark.usefixtures("params")
@pytest.mark.parametrize("time", ["NaN", "Infinity", "-1", "null"])
def test_what_is_no_time_is_none(time: str) -> None:
    path = Path(".trainparity/seconds.json")
    path.parent.mkdir(exist_ok=True)
    path.write_text(f'{{"last": {{"report": {time}}}}}')
    assert schedule.seconds(["report"]) is None


@pytest.mark.usefixtures("params")
def test_a_stage_that_fails_leaves_no_time() -> None:
    with pytest.raises(ValueError), schedule.stage("reference"):
        raise ValueError
    assert not Path(".trainparity/seconds.json").exists()


def test_stages_that_run_are_those_whose_inputs_are_new_and_what_follows_them(
    params: Params,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    Path("dvc.yaml").write_text(DVC)
    made = of(params) | {"compare": plan(), "report": plan(), "experiment": plan()}
    every = ["prepare", "reference", *(f"train/{name}" for name in params.configs), "compare", "report"]
    assert plans.to_run(made, params) == every
    monkeypatch.setattr(plans, "_of_last_run", lambda: iter(made.items()))
    assert plans.to_run(made, params) == []
    assert plans.to_run(made | {"report": plan(new=1)}, params) == ["report"]
    assert plans.to_run(made | {"train/ddp": plan(new=1)}, params) == ["train/ddp", "compare", "report"]
    assert plans.to_run(made | {"reference": plan(needed=1)}, params) == ["reference", "compare", "report"]
    assert plans.to_run(made | {"reference": plan(seed=1)}, params) == every
    Path("dvc.yaml").unlink()  # then nothing is cached
    assert plans.to_run(made, params) == every


@pytest.mark.parametrize("text", ["", "stages:", "stages: {}"])
def test_a_file_of_dvc_without_stages_runs_none(params: Params, text: str) -> None:  # noqa: F811
    for name in ("dvc.yaml", "dvc.lock"):
        Path(name).write_text(text)
    assert (plans.to_run(of(params), params), plans.changes(of(params))) == ([], [])
    plans.check_stages(of(params))


@pytest.mark.parametrize("name", ["dvc.yaml", "dvc.lock"])
@pytest.mark.parametrize("text", ["[a]", "stages: [a]", "stages: {a: 1}", "1"])
def test_a_damaged_file_of_dvc_is_named(params: Params, name: str, text: str) -> None:  # noqa: F811
    Path("dvc.yaml").write_text(DVC)
    Path(name).write_text(text)
    with pytest.raises(ParamsError, match=f"^{name}: "):
        plans.to_run(of(params), params)


@pytest.mark.parametrize("entry", ["a", "{}", "{path: a}", "{path: a, md5: }"])
def test_an_entry_of_dvcs_lock_without_a_hash_says_nothing(params: Params, entry: str) -> None:  # noqa: F811
    Path("a").touch()
    Path("dvc.lock").write_text(f"stages: {{a: {{deps: [{entry}]}}, b: {{deps: , outs: [{entry}]}}}}")
    assert plans.changes(of(params)) == []


LOCK = """stages:
  prepare:
    deps: [{{path: raw.csv, md5: {raw}}}, {{path: folder, md5: 1.dir}}]
    outs: [{{path: data/prepared, md5: 2.dir}}]
  train@ddp:
    deps: [{{path: raw.csv, md5: {raw}}}, {{path: data/prepared/a, md5: 3}}, {{path: more.txt, md5: {more}}}]
"""


def test_files_that_a_user_added_to_the_deps_are_compared_too(
    params: Params,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    Path("dvc.yaml").write_text(DVC)
    made = of(params)
    monkeypatch.setattr(plans, "_of_last_run", lambda: iter(made.items()))
    for path in ("raw.csv", "more.txt", "data/prepared/a"):
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).write_text("old")
    old = hashlib.md5(b"old").hexdigest()
    Path("dvc.lock").write_text(LOCK.format(raw=old, more=old))
    assert (plans.changes(made), plans.to_run(made, params)) == ([], [])
    Path("more.txt").write_text("new")
    assert [change.sentence for change in plans.changes(made)] == ["more.txt was edited: train@ddp"]
    assert "train/ddp" in plans.to_run(made, params) and "prepare" not in plans.to_run(made, params)
    Path("raw.csv").write_text("new")
    assert plans.changes(made)[0].sentence == "raw.csv was edited: prepare, train@ddp"
    assert "reference" in plans.to_run(made, params)
