"""What README.md and docs/ show is true."""

import ast
import importlib
import inspect
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal, get_args, get_origin

import pytest
import torch
import yaml

from trainparity import params, strategies, validation, workloads
from trainparity.cli import app
from trainparity.records.claims import ClaimReport
from trainparity.testing import assert_same_training
from trainparity.workloads import SampleRandomness

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), *sorted(ROOT.glob("[A-Z]*.md"))]
DOCUMENTS = "\n".join(path.read_text(encoding="utf-8") for path in dict.fromkeys(PAGES))
PYTHON = re.findall(r"```python\n(.*?)```", DOCUMENTS, re.DOTALL)


def test_its_workload_can_be_copied_and_trains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    [code] = [code for code in PYTHON if "class Classifier" in code]
    (tmp_path / "readme_workload.py").write_text(code)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    workload = workloads.load("readme_workload:Classifier", {})
    samples = torch.arange(4)
    batch = {"images": torch.ones(4, 1, 8, 8, dtype=torch.uint8), "labels": samples, "samples": samples}
    model = workload.build_model({name: tensor[:1] for name, tensor in batch.items()})
    loss = workload.loss(model, batch | workload.draw(batch, SampleRandomness(0, 0, samples)))
    loss.backward()
    assert loss.shape == () and workload.count(batch) == 4
    assert all(parameter.grad is not None and parameter.grad.abs().sum() > 0 for parameter in model.parameters())


def test_its_example_of_a_new_configuration_is_valid() -> None:
    content = validation.read_yaml(ROOT / "params.yaml")
    [line] = re.findall(r"^  (ddp-bf16: .*)$", DOCUMENTS, re.MULTILINE)
    content["configs"] |= yaml.safe_load("{" + line + "}")
    added = params.parse(content, Path("params.yaml"))
    assert added.configs["ddp-bf16"].accumulation_steps == 2 and "ddp-bf16" in added.pairs


def test_its_table_of_settings_is_complete() -> None:
    text = (ROOT / "docs/pipeline.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| `(\w+)` \| (.*) \|$", text, re.MULTILINE))
    assert set(rows) == set(params.Configuration.model_fields)
    for name, field in params.Configuration.model_fields.items():
        for value in get_args(field.annotation) if get_origin(field.annotation) is Literal else ():
            assert f"`{value}`" in rows[name], (name, value)
    for section, names in (("loader", params.Loader.model_fields), ("strategy", strategies.names())):
        assert [name for name in names if f"`{name}`" not in rows[section]] == []


def test_its_example_of_loading_is_valid() -> None:
    [example] = re.findall(r"^loading: .*$", DOCUMENTS, re.MULTILINE)
    content = validation.read_yaml(ROOT / "params.yaml") | yaml.safe_load(example)
    assert params.parse(content, Path("params.yaml")).loading


def test_every_target_of_make_that_is_named_exists() -> None:
    targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert set(re.findall(r"(?:`|^)make ([a-z-]+)", DOCUMENTS, re.MULTILINE)) <= {*targets}


@pytest.mark.parametrize("page", dict.fromkeys(PAGES), ids=lambda path: str(path.relative_to(ROOT)))
def test_every_link_leads_somewhere(page: Path) -> None:
    for link in re.findall(r"\]\((?!https?:)([^)#]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
        assert (page.parent / link).exists(), link


@pytest.mark.parametrize("index", ["README.md", "docs/index.md"])
def test_every_page_is_in_the_readme_and_in_the_index(index: str) -> None:
    path = ROOT / index
    linked = re.findall(r"\]\((?!https?:)([^)#]+)", path.read_text(encoding="utf-8"))
    pages = {*(ROOT / "docs").glob("*.md")} - {ROOT / "docs/index.md"}
    assert pages <= {(path.parent / link).resolve() for link in linked}


def test_an_installation_brings_as_many_packages_everywhere_as_were_counted() -> None:
    [counted] = re.findall(r"^\| trainparity \| (\d+) \|", DOCUMENTS, re.MULTILINE)
    for page in ("README.md", "docs/quickstart.md"):
        assert re.findall(r"(\w+)(?: small)? packages", (ROOT / page).read_text(encoding="utf-8")) == [counted], page


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 135


def test_every_command_that_is_shown_exists() -> None:
    known = {command.callback.__name__ for command in app.registered_commands if command.callback}
    shown = set(re.findall(r"(?:`|^)trainparity ([a-z]+)", DOCUMENTS, re.MULTILINE))
    assert shown and shown <= known


def test_every_option_that_is_shown_exists() -> None:
    callbacks = {command.callback.__name__: command.callback for command in app.registered_commands if command.callback}
    for name, rest in re.findall(r"^trainparity ([a-z]+)(.*?)(?: #.*)?$", DOCUMENTS, re.MULTILINE):
        options = set(re.findall(r" --([a-z-]+)", rest.partition(" -- ")[0].partition('"')[0]))
        source = inspect.getsource(callbacks[name])
        missing = [
            o for o in options if o.removeprefix("no-").replace("-", "_") not in source and f"--{o}" not in source
        ]
        assert not missing, (name, missing)


@pytest.mark.parametrize("code", PYTHON, ids=lambda code: code.splitlines()[0])
def test_every_piece_of_python_compiles_and_imports_what_is_there(code: str) -> None:
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.ImportFrom) and node.module:
            module = importlib.import_module(node.module)
            assert all(hasattr(module, alias.name) for alias in node.names), ast.unparse(node)


def test_the_example_of_a_test_passes() -> None:
    [code] = [code for code in PYTHON if "def train(record, accumulation_steps" in code]
    names: dict[str, Any] = {}
    exec(compile(code, "docs/ci.md", "exec"), names)
    names["test_accumulation"](SimpleNamespace(assert_same_training=assert_same_training))


def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", str(tmp_path / "site")]
    quiet = {"NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=os.environ | quiet, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "assert_same_training" in (tmp_path / "site/api.html").read_text(encoding="utf-8")


def test_its_table_of_claims_says_what_was_measured() -> None:
    rows = re.findall(r"^\| `([a-z-]+)` ([\w-]+): (.+) \| (.+) \| (.+) \| ([a-z ]+) \|$", DOCUMENTS, re.MULTILINE)
    assert {study for study, *_ in rows} == {path.parent.name for path in ROOT.glob("studies/*/dvc.yaml")}
    for study, name, statement, published, measured, verdict in rows:
        report = ClaimReport.read(ROOT / f"benchmarks/results/studies/{study}-laptop.json")
        [found] = [result for result in report.results if result.name == name]
        assert (statement, published, verdict) == (found.statement, found.published, found.verdict), name
        assert found.measured and measured in found.measured, name
