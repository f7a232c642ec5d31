"""docs/configurations: a page for each configuration, strategy and candidate, whose settings are valid."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from trainparity import params, strategies, validation
from trainparity.checking import candidates

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "docs/configurations"
PAGES = {path.stem: path.read_text(encoding="utf-8") for path in sorted(FOLDER.glob("*.md")) if path.stem != "index"}
DEFAULT = validation.read_yaml(ROOT / "params.yaml")


def configured(text: str) -> dict[str, Any]:
    [block] = re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)
    found: dict[str, Any] = yaml.safe_load(block)["configs"]
    return found


CONFIGURED = {page: configured(text) for page, text in PAGES.items()}


def test_every_configuration_of_the_pipeline_has_a_page_with_its_line() -> None:
    assert {name: CONFIGURED[name][name] for name in DEFAULT["configs"]} == DEFAULT["configs"]


@pytest.mark.parametrize("page", PAGES)
def test_its_line_is_valid(page: str) -> None:
    content = DEFAULT | {"configs": DEFAULT["configs"] | CONFIGURED[page]}
    assert params.parse(content, Path("params.yaml")).configs.keys() >= CONFIGURED[page].keys()


def test_every_strategy_is_on_a_page() -> None:
    used = {entry.get("strategy", "single") for entries in CONFIGURED.values() for entry in entries.values()}
    assert used == {*strategies.names()}


def test_every_candidate_is_on_a_page() -> None:
    shown = re.findall(r"--against ([a-z0-9-]+)", "\n".join(PAGES.values()))
    assert {*candidates.CANDIDATES} - {"single"} <= {*shown}


@pytest.mark.parametrize("page", PAGES)
def test_it_says_what_it_does_when_to_use_it_and_what_may_differ(page: str) -> None:
    text = PAGES[page]
    assert text.startswith(f"# `{page}`\n")
    sections = dict(re.findall(r"^## ([^\n]*)\n\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL))
    assert [*sections][:3] == ["What it does", "When to use it", "What may differ"]
    assert "](../causes/" in sections["What may differ"]
    for against in re.findall(r"--against ([a-z0-9:+-]+)", text):
        candidates.parse(against)


def test_the_index_lists_them() -> None:
    listed = re.findall(r"^- \[`([a-z-]+)`\]\(\1\.md\)$", (FOLDER / "index.md").read_text(), re.MULTILINE)
    assert sorted(listed) == [*PAGES]
