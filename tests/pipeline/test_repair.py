"""A damaged lock record of DVC is moved aside; a good one is left."""

import subprocess
import sys
from pathlib import Path

import pytest

from trainparity.pipeline.repair import repair


@pytest.fixture
def record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    subprocess.run([sys.executable, "-m", "dvc", "init", "--quiet", "--no-scm"], cwd=tmp_path, check=True)
    (tmp_path / "within").mkdir()
    monkeypatch.chdir(tmp_path / "within")
    (tmp_path / ".dvc/tmp").mkdir(exist_ok=True)
    (tmp_path / "dvc.yaml").write_text("stages: {a: {cmd: echo done > a, outs: [a]}}")
    return tmp_path / ".dvc/tmp/rwlock"


def reproduce(folder: Path) -> int:
    return subprocess.run([sys.executable, "-m", "dvc", "repro", "--quiet"], cwd=folder, check=False).returncode


@pytest.mark.parametrize(
    "content", ['{"wri', "", "[]", '{"write": {"a": {"pid": "x"}}}', pytest.param("[" * 100_000, id="deep")]
)
def test_a_damaged_record_is_moved_aside_and_dvc_works_again(record: Path, content: str) -> None:
    record.write_text(content)
    project = record.parents[2]
    assert reproduce(project) == 255
    assert "damaged" in (repair(Path.cwd()) or "")
    [aside] = record.parent.glob("rwlock.damaged-*")
    assert aside.read_text() == content
    assert reproduce(project) == 0


@pytest.mark.parametrize("content", [None, "{}", '{"write": {"a": {"pid": 1, "cmd": "dvc repro"}}}'])
def test_a_good_record_stays(record: Path, content: str | None) -> None:
    if content is not None:
        record.write_text(content)
    assert repair(Path.cwd()) is None
    assert record.exists() == (content is not None)
