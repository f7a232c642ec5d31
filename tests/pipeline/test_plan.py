"""What each stage depends on, computed from the project's own params.yaml and source files."""

import copy
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.project import ROOT
from trainparity import params, validation
from trainparity.environment import Environment
from trainparity.pipeline import plans as files
from trainparity.pipeline.plan import Plan
from trainparity.pipeline.planner import Planner

HERE = Environment(
    system="Linux", machine="x86_64", python="3.11.7", torch="2.11.0", torchvision="0.26.0", cuda=None,
    processor="tested", cores=2, accelerators=[], compiler="g++", nodes=1, image=None,
)  # fmt: skip
CONTENT = validation.read_yaml(ROOT / "params.yaml")
STARTER = ROOT / "src/trainparity/starter/dvc.yaml"
PIPELINES = [ROOT / "dvc.yaml", *sorted(ROOT.glob("studies/*/dvc.yaml")), STARTER]


def planned(content: dict[str, Any], environment: Environment = HERE) -> dict[str, Plan]:
    return Planner(params.parse(content, Path("params.yaml")), environment).plans()


def changed(*keys: str, value: object) -> dict[str, Any]:
    content = section = copy.deepcopy(CONTENT)
    for key in keys[:-1]:
        section = section[key]
    section[keys[-1]] = value
    return content


@pytest.fixture(scope="module")
def before() -> dict[str, Plan]:
    return planned(CONTENT)


TRAIN = {f"train/{name}" for name in CONTENT["configs"]}
TRAINING = {"reference", "counterpart", *TRAIN}


@pytest.mark.parametrize(
    ("keys", "value", "stages"),
    [
        (("train", "seed"), 1, {*TRAINING, "report"}),
        (("accelerator",), "cpu", {*TRAINING, "report"}),
        (("timing", "steps"), 30, {"reference", *TRAIN, "report"}),
        (("parity", "twins"), 2, {"reference", "report"}),
        (("parity", "margin"), 8.0, {"compare", "experiment", "report"}),
        (("configs", "ddp", "world_size"), 4, {"train/ddp", "report"}),
        (("configs", "ddp", "strategy"), "ddp", set()),
        (("configs", "ddp", "device"), "auto", set()),
        (("references",), {"fp32": {"train": {"seed": 3}}}, {*TRAINING, "report"}),
        (("references",), {"fp32": {}, "fp64": {}}, {"reference", "report"}),
        (("dataset", "image_size"), 16, {"prepare", "report"}),
        (("parallel",), "cpu", {"experiment", "report"}),
        (("deadline_s",), 60.0, set()),
        (("step_deadline_s",), 60.0, set()),
        (("scales",), {"large": {"train": {"seed": 9}}}, set()),
        (("pairs",), {}, {"compare", "report", "counterpart"}),
        (("memory_limit_mib",), 100.0, {"report"}),
    ],
    ids=lambda value: ".".join(value) if isinstance(value, tuple) else "",
)
def test_a_setting_changes_the_plans_of_the_stages_that_read_it(
    before: dict[str, Plan], keys: tuple[str, ...], value: object, stages: set[str]
) -> None:
    after = planned(changed(*keys, value=value))
    odd = {name for name in before.keys() & after.keys() if before[name] != after[name]}
    assert odd == stages


def test_a_new_configuration_changes_no_plan_but_those_that_judge_and_report(before: dict[str, Plan]) -> None:
    after = planned(changed("configs", "four", value={"accumulation_steps": 4}))
    assert after.keys() - before.keys() == {"train/four"}
    # The stage `reference` says which configuration needs which reference; it keeps what is there.
    assert {name for name in before if before[name] != after[name]} == {"reference", "compare", "report"}


def test_another_machine_changes_the_plans_of_the_stages_that_train(before: dict[str, Plan]) -> None:
    after = planned(CONTENT, HERE.model_copy(update={"processor": "another"}))
    assert {name for name in before if before[name] != after[name]} == {*TRAINING, "known-answer"}


def test_a_run_depends_on_its_own_workload_and_strategy_and_on_no_other(before: dict[str, Plan]) -> None:
    ddp, own = set(before["train/ddp"].files), {f for f in before["train/ddp"].files if "/workloads/" in f}
    assert "trainparity/workloads/ddpm.py" in own
    assert not own & {f"trainparity/workloads/{name}.py" for name in ("resnet", "classifier", "superres", "registry")}
    assert "trainparity/training/loop.py" in ddp and "trainparity/stages/train.py" in ddp
    assert not {
        file for file in ddp if file.startswith(tuple(f"trainparity/{room}/" for room in ("report", "check", "cli")))
    }
    assert not ddp & {"trainparity/parity/verdict.py", "trainparity/data/datasets.py", "trainparity/records/claims.py"}
    assert before["train/ddp"].distributions.keys() >= {"torch", "numpy", "safetensors", "pydantic"}


def test_a_users_workload_and_what_it_imports_are_in_the_plans_that_train_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine.py").write_text("from layers import Block\n")
    (tmp_path / "layers.py").write_text("class Block: pass\n")
    monkeypatch.chdir(tmp_path)
    content = changed("workload", value={"name": "mine:Mine"})
    first = planned(content)
    assert {"mine.py", "layers.py"} <= first["train/ddp"].files.keys()
    (tmp_path / "layers.py").write_text("class Block: width = 2\n")
    second = planned(content)
    assert {name for name in first if first[name] != second[name]} == TRAINING
    assert "mine.py" not in first["compare"].files


def test_what_a_dataset_is_read_from_is_in_the_plan_that_prepares_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    photos, elsewhere = tmp_path / "photos", tmp_path / "elsewhere"
    elsewhere.mkdir()
    (photos / "cats").mkdir(parents=True)
    (photos / "dogs").symlink_to(elsewhere)
    (photos / "cats/around").symlink_to(photos)
    image, linked = photos / "cats/1.png", elsewhere / "2.png"
    image.write_bytes(b"1")
    linked.write_bytes(b"2")
    for dataset in ({"name": "imagefolder", "path": "photos"}, {"name": "own", "files": ["photos", "missing"]}):
        content = changed("dataset", value=dataset)
        first = planned(content)
        for edited in (image, linked):
            before = edited.read_bytes()
            edited.write_bytes(before + b"more")
            assert {name for name, plan in planned(content).items() if plan != first[name]} == {"prepare"}
            edited.write_bytes(before)
        (photos / ".ipynb_checkpoints").mkdir(exist_ok=True)
        (photos / ".ipynb_checkpoints/1.png").write_bytes(b"1")
        assert planned(content) == first
        image.rename(photos / "cats/3.png")
        assert planned(content)["prepare"].files["photos"] != first["prepare"].files["photos"]
        (photos / "cats/3.png").rename(image)


@pytest.mark.parametrize("path", PIPELINES, ids=lambda path: path.parent.name)
def test_a_pipeline_lists_no_code_and_no_configuration(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert "src/" not in text
    configs = params.load(path.with_name("params.yaml")).configs
    for stage in yaml.safe_load(text)["stages"].values():
        for entry in [*stage.get("do", stage)["deps"], *stage.get("do", stage).get("outs", [])]:
            assert not any(f"/{name}" in str(entry) for name in configs), entry


def test_the_pipelines_are_short() -> None:
    assert sum(len(path.read_text(encoding="utf-8").splitlines()) for path in PIPELINES) < 520


@pytest.mark.parametrize("path", PIPELINES[1:], ids=lambda path: path.parent.name)
def test_a_studys_pipeline_is_the_default_one_and_what_it_adds(path: Path) -> None:
    ours = yaml.safe_load(PIPELINES[0].read_text())["stages"]
    theirs = yaml.safe_load(path.read_text())["stages"]
    assert theirs.keys() - ours.keys() <= {"claims", "curves", "loading", "picture"}
    for name in theirs.keys() & ours.keys():
        mine, its = ours[name].get("do", ours[name]), theirs[name].get("do", theirs[name])
        assert its["cmd"] == mine["cmd"]
        # Those of stages that only the default pipeline has are left out.
        left_out = {"runs/known-answer", "benchmarks/results/controls.json"}
        assert {*mine["deps"]} - left_out <= {*its["deps"]}
        assert all(out in its["outs"] for out in mine.get("outs", ()))


@pytest.mark.parametrize("path", PIPELINES, ids=lambda path: path.parent.name)
def test_every_stage_that_params_ask_for_has_a_plan_and_depends_on_it(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(path.parent)
    found = Planner(params.load(Path("params.yaml")), HERE).plans()
    stages = {n: s.get("do", s) for n, s in yaml.safe_load(path.read_text())["stages"].items()}
    assert {name.partition("/")[0] for name in found} - {"experiment", "counterpart"} <= stages.keys()
    for name, stage in stages.items():
        listed = [re.sub(r"\$\{key\}", "", dep) for dep in stage["deps"] if dep.startswith("runs/plan/")]
        expected = "runs/plan/train/.json" if name == "train" else f"runs/plan/{name}.json"
        assert name in ("validate", "probe") or listed == [expected]


def test_plans_are_written_and_old_ones_go(tmp_path: Path, before: dict[str, Plan]) -> None:
    files.write(before, tmp_path)
    files.write({name: plan for name, plan in before.items() if name != "train/ddp"}, tmp_path)
    assert not (tmp_path / "train/ddp.json").exists()
    assert Plan.read(tmp_path / "train/cpu.json") == before["train/cpu"]


def test_equal_plans_are_equal_bytes(tmp_path: Path, before: dict[str, Plan]) -> None:
    for folder, plans in (("a", before), ("b", planned(CONTENT))):
        files.write(plans, tmp_path / folder)
    for path in (tmp_path / "a").rglob("*.json"):
        assert path.read_bytes() == (tmp_path / "b" / path.relative_to(tmp_path / "a")).read_bytes()


def test_a_stage_without_its_section_is_named(tmp_path: Path, before: dict[str, Plan]) -> None:
    path = tmp_path / "dvc.yaml"
    path.write_text((ROOT / "studies/cpu-offload/dvc.yaml").read_text())
    plans = {name: before[name] for name in before} | {"claims": before["report"]}
    with pytest.raises(
        validation.ParamsError, match=r"dvc.yaml: stages.picture: params.yaml has no section `picture`; add"
    ):
        files.check_stages(plans, path)
    files.check_stages(plans | {"picture": before["report"]}, path)
