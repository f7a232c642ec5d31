"""A file that a stage has read is part of its plan from when it is another one than when it was first read."""

from pathlib import Path

import pytest

from trainparity.hashing import hash_of
from trainparity.observed import UNKNOWN
from trainparity.pipeline.reading import edited, keep, learn
from trainparity.records.files_read import FilesRead

SETTING, RECORD = Path("setting.json"), Path("runs/report/ddp/files-read.json")
STAGE = "train/ddp"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write("1")
    ran()


def write(text: str) -> str:
    SETTING.write_text(text)
    return hash_of(SETTING)


def ran(before: tuple[str, ...] = ()) -> None:
    FilesRead(files={str(SETTING): hash_of(SETTING)}).write(RECORD)
    learn(STAGE, before)


def test_nothing_changes_by_the_first_run() -> None:
    assert edited(STAGE) == {}
    assert edited("train/other") == {}


def test_an_edit_stays_part_of_the_plan_after_the_run_that_it_caused() -> None:
    second = write("2")
    assert edited(STAGE) == {str(SETTING): second}
    ran()
    assert edited(STAGE) == {str(SETTING): second}
    write("1")
    assert edited(STAGE) == {}


def test_a_removed_file_is_another_one() -> None:
    SETTING.unlink()
    assert edited(STAGE) == {str(SETTING): "missing"}


def test_what_is_kept_is_made_again_from_the_record() -> None:
    Path(f".trainparity/read/{STAGE}.json").unlink()
    learn(STAGE, ())
    second = write("2")
    assert edited(STAGE) == {str(SETTING): second}


def test_of_a_plan_that_has_the_file_what_was_first_read_may_be_lost() -> None:
    second = write("2")
    ran()
    Path(f".trainparity/read/{STAGE}.json").unlink()
    learn(STAGE, [str(SETTING)])
    assert edited(STAGE) == {str(SETTING): second}  # as before: nothing runs again
    assert edited(STAGE) != {} if write("1") else None


def test_what_nobody_knows_is_always_another_one() -> None:
    keep("prepare", {str(SETTING): UNKNOWN})
    assert edited("prepare") == {str(SETTING): hash_of(SETTING)}


def test_a_damaged_record_says_nothing() -> None:
    RECORD.write_text("{")
    learn(STAGE, ())
    assert edited(STAGE) == {}
