"""A stage whose settings or files were edited after `probe` makes nothing that DVC would keep under the old plan."""

from pathlib import Path

import pytest
import yaml

from tests.pipeline.test_plan import CONTENT, HERE
from trainparity import params
from trainparity.errors import UserError
from trainparity.hashing import hash_of
from trainparity.observed import UNKNOWN
from trainparity.pipeline import plans
from trainparity.pipeline.reading import complete
from trainparity.pipeline.unedited import check_unedited
from trainparity.records import layout
from trainparity.records.files_read import NAME, FilesRead

MINE = "from tests.support.mlp import Mlp as Mine\n"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(MINE)
    Path("params.yaml").write_text(yaml.safe_dump(CONTENT | {"workload": {"name": "mine:Mine"}}))
    HERE.write(layout.environment(Path("runs")))
    plans.write(plans.make(params.load(Path("params.yaml")), HERE))


def test_nothing_edited_nothing_said() -> None:
    for stage in ("reference", "train/ddp", "compare", "validate", "probe"):
        check_unedited(stage, "")


def test_an_edited_file_is_named() -> None:
    Path("mine.py").write_text(f"{MINE}# edited\n")
    with pytest.raises(UserError, match=r"^train@ddp: mine\.py was edited while it ran$"):
        check_unedited("train/ddp", "while it ran")
    check_unedited("compare", "")


def test_an_edited_setting_is_named() -> None:
    Path("params.yaml").write_text(Path("params.yaml").read_text().replace("seed: 0", "seed: 1"))
    with pytest.raises(UserError, match=r"^reference: references\.fp32\.train\.seed: 1, was 0 while it ran$"):
        check_unedited("reference", "while it ran")


def test_so_is_a_file_that_an_earlier_run_has_read() -> None:
    setting, plan = Path("setting.json"), plans.PLANS / "train/ddp.json"
    setting.write_text("1")
    FilesRead(files={"setting.json": hash_of(setting), "made": UNKNOWN}).write(Path("runs/report/ddp") / NAME)
    complete("train/ddp", plan)
    check_unedited("train/ddp", "")
    setting.write_text("2")
    with pytest.raises(UserError, match=r"train@ddp: setting\.json was edited"):
        check_unedited("train/ddp", "")
