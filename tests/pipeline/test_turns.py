"""The count beside a progress bar: of what trains in this run of the pipeline, not of what params.yaml names."""

from pathlib import Path

import pytest

from tests.support.report_tree import PARAMS, environment
from trainparity.params import Params, load
from trainparity.pipeline import plans, turns
from trainparity.pipeline.plan import Plan


@pytest.fixture
def params(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Params:
    monkeypatch.chdir(tmp_path)
    Path("params.yaml").write_text(PARAMS)
    return load(Path("params.yaml"))


def plan(**settings: int) -> Plan:
    return Plan(settings=settings, files={}, distributions={})


def of(params: Params, **changed: Plan) -> dict[str, Plan]:
    names = ["prepare", "reference", *(f"train/{name}" for name in params.configs)]
    return dict.fromkeys(names, plan()) | {name.replace("_", "/"): one for name, one in changed.items()}


def test_turns_count_what_begins_and_nothing_twice(params: Params) -> None:
    turns.expect(["cpu", "ddp", "compiled"])
    assert [turns.take(name) for name in ("ddp", "mps", "cpu", "ddp", "compiled")] == [
        "[1/3]",
        "",
        "[2/3]",
        "",
        "[3/3]",
    ]


def test_a_stage_by_itself_and_a_single_one_have_no_turn(params: Params) -> None:
    assert turns.take("cpu") == ""
    turns.expect(["cpu"])
    assert turns.take("cpu") == ""


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({}, []),
        ({"train_ddp": plan(batch=2)}, ["ddp"]),
        ({"train_mps": plan(batch=2)}, []),  # this machine has none
        ({"reference": plan(seed=1)}, ["cpu", "dp", "ddp", "gradaccum", "compiled", "lr-doubled", "broken"]),
    ],
)
def test_what_has_not_changed_does_not_train(
    params: Params, monkeypatch: pytest.MonkeyPatch, changed: dict[str, Plan], expected: list[str]
) -> None:
    monkeypatch.setattr(plans, "_of_last_run", lambda: iter(of(params).items()))
    assert plans.to_train(of(params, **changed), params, environment()) == expected


def test_without_a_last_run_all_train_that_can(params: Params) -> None:
    assert plans.to_train(of(params), params, environment()) == [name for name in params.configs if name != "mps"]
