"""What `probe` clears away, and what it leaves."""

from pathlib import Path

import pytest

from tests.pipeline.test_plan import CONTENT
from trainparity import params
from trainparity.pipeline.plans import remove_leftovers


def test_outputs_of_removed_configurations_go_and_files_of_dvc_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("ddp", "counterpart", "old"):
        Path("runs/state", name).mkdir(parents=True)
    ignored = Path("runs/state/.gitignore")  # DVC's, where the project's own .gitignore leaves the folder out
    ignored.write_text("/ddp\n")
    assert remove_leftovers(params.parse(CONTENT, Path("params.yaml"))) == ["old"]
    assert sorted(path.name for path in Path("runs/state").iterdir()) == [".gitignore", "counterpart", "ddp"]
    assert ignored.read_text() == "/ddp\n"
