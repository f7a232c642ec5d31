"""What the README shows is true."""

import re
from pathlib import Path
from typing import Literal, get_args, get_origin

import pytest
import torch
import yaml

from trainparity import params, strategies, validation, workloads
from trainparity.parity.causes import UNKNOWN, paragraphs
from trainparity.records.claims import ClaimReport
from trainparity.workloads import SampleRandomness

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_its_workload_can_be_copied_and_trains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    [code] = [c for c in re.findall(r"```python\n(.*?)```", README, re.DOTALL) if "class Classifier" in c]
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


def test_the_document_on_verdicts_has_the_paragraphs_of_the_registry_of_causes() -> None:
    document = (ROOT / "docs" / "verdict.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| `([a-z-]+)` \| (.*) \|$", document, re.MULTILINE))
    assert rows == {**paragraphs(), UNKNOWN: "none of these"}


def test_its_example_of_a_new_configuration_is_valid() -> None:
    content = validation.read_yaml(ROOT / "params.yaml")
    [line] = re.findall(r"^  (ddp-bf16: .*)$", README, re.MULTILINE)
    content["configs"] |= yaml.safe_load("{" + line + "}")
    added = params.parse(content, Path("params.yaml"))
    assert added.configs["ddp-bf16"].accumulation_steps == 2 and "ddp-bf16" in added.pairs


def test_its_table_of_settings_is_complete() -> None:
    rows = dict(re.findall(r"^\| `(\w+)` \| (.*) \|$", README, re.MULTILINE))
    assert set(rows) == set(params.Configuration.model_fields)
    for name, field in params.Configuration.model_fields.items():
        for value in get_args(field.annotation) if get_origin(field.annotation) is Literal else ():
            assert f"`{value}`" in rows[name], (name, value)
    for section, names in (("loader", params.Loader.model_fields), ("strategy", strategies.names())):
        assert [name for name in names if f"`{name}`" not in rows[section]] == []


def test_its_example_of_loading_is_valid() -> None:
    [example] = re.findall(r"^loading: .*$", README, re.MULTILINE)
    content = validation.read_yaml(ROOT / "params.yaml") | yaml.safe_load(example)
    assert params.parse(content, Path("params.yaml")).loading


def test_every_path_and_target_it_names_exists() -> None:
    targets = re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert set(re.findall(r"\bmake (\w+)", README)) - {"lint", "test"} <= {*targets}
    for link in re.findall(r"\]\(([^)#]+)\)", README):
        assert (ROOT / link).exists(), link


def test_its_table_of_claims_says_what_was_measured() -> None:
    rows = re.findall(r"^\| `([a-z-]+)` ([\w-]+): (.+) \| (.+) \| (.+) \| ([a-z ]+) \|$", README, re.MULTILINE)
    assert {study for study, *_ in rows} == {path.name for path in (ROOT / "studies").iterdir()}
    for study, name, statement, published, measured, verdict in rows:
        report = ClaimReport.read(ROOT / f"benchmarks/results/studies/{study}-laptop.json")
        [found] = [result for result in report.results if result.name == name]
        assert (statement, published, verdict) == (found.statement, found.published, found.verdict), name
        assert found.measured and measured in found.measured, name
