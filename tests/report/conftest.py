"""Artifacts of a whole pipeline, read once for the tests that only look."""

from pathlib import Path

import pytest

from tests.support import report_tree
from trainparity.params import load
from trainparity.report import artifacts, origin, pipeline, summary
from trainparity.report.artifacts import Artifacts
from trainparity.report.schema import Summary

ORIGIN = origin.Origin("trainparity repro", None)
"""Of a folder without git, as the tests' are."""


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
    return pipeline.render(built, read, ORIGIN)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A folder with artifacts that a test may change."""
    report_tree.write(tmp_path)
    return tmp_path
