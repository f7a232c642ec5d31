"""Artifacts of a whole pipeline, read once for the tests that only look."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.support import report_tree
from trainparity.params import load
from trainparity.report import artifacts, page, summary
from trainparity.report.artifacts import Artifacts
from trainparity.report.schema import Summary


@pytest.fixture(scope="session")
def read(tmp_path_factory: pytest.TempPathFactory) -> Artifacts:
    root = tmp_path_factory.mktemp("pipeline")
    report_tree.write(root)
    return artifacts.read(root, load(root / "params.yaml"))


@pytest.fixture(scope="session")
def built(read: Artifacts) -> Summary:
    return summary.build(read)


@pytest.fixture(scope="session")
def html(built: Summary, read: Artifacts) -> str:
    return page.render(built, read)


@pytest.fixture(scope="session")
def unplotted(read: Artifacts) -> Artifacts:
    """The same artifacts without anything to draw, which is what takes long."""
    configurations = {name: replace(run, timing=None, losses=()) for name, run in read.configurations.items()}
    references = {name: replace(run, timing=None, losses=()) for name, run in read.references.items()}
    return replace(read, configurations=configurations, references=references, distances={})


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A folder with artifacts that a test may change."""
    report_tree.write(tmp_path)
    return tmp_path
