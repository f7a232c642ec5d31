"""Whether what a run has read is still what it was."""

from pathlib import Path

import pytest

from trainparity.hashing import MISSING, hash_of, names_in
from trainparity.launch.files_read import as_they_were, hand_over
from trainparity.observed import UNKNOWN
from trainparity.records.files_read import NAME, FilesRead

FILE = Path("setting.json")


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    FILE.write_text("1")


def record(digest: str) -> Path:
    FilesRead(files={str(FILE): digest}).write(Path("work") / NAME)
    return Path("work")


def test_a_file_is_as_it_was_until_it_is_edited_or_gone() -> None:
    work = record(hash_of(FILE))
    assert as_they_were(work)
    FILE.write_text("2")
    assert not as_they_were(work)
    FILE.unlink()
    assert not as_they_were(work)


def test_a_folder_is_as_it_was_until_a_name_comes() -> None:
    work = record(hash_of(FILE))
    FilesRead(files={"images/": names_in(Path("images"))}).write(work / NAME)
    assert as_they_were(work)
    Path("images").mkdir()
    assert not as_they_were(work)


def test_a_file_that_was_missing_may_come() -> None:
    FILE.unlink()
    work = record(MISSING)
    assert as_they_were(work)
    FILE.write_text("1")
    assert not as_they_were(work)


def test_a_folder_without_a_record_has_read_nothing_and_a_damaged_one_is_not_trusted() -> None:
    assert as_they_were(Path("never"))
    (record(UNKNOWN) / NAME).write_text("{")
    assert not as_they_were(Path("work"))
    assert not as_they_were(record(UNKNOWN))


def test_the_report_gets_the_record() -> None:
    hand_over(record("0"), Path("report"))
    assert FilesRead.read(Path("report") / NAME).files == {str(FILE): "0"}
    hand_over(Path("never"), Path("other"))
    assert not Path("other").exists()
