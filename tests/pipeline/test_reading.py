"""What a stage has read is part of its plan from the end of its first run, and of the next plan by itself."""

import hashlib
from collections.abc import Callable
from pathlib import Path

import pytest

from trainparity.hashing import MISSING, hash_of, names_in
from trainparity.observed import UNKNOWN
from trainparity.pipeline import cache
from trainparity.pipeline.plan import Plan
from trainparity.pipeline.reading import complete, remembered
from trainparity.records.files_read import FilesRead

SETTING, RECORD = Path("setting.json"), Path("runs/report/ddp/files-read.json")
PATH, STAGE = Path("runs/plan/train/ddp.json"), "train/ddp"
FIRST = Plan(settings={}, files={"mine.py": "1", "package/__init__.py": "2", "package/part.py": "3"}, distributions={})


@pytest.fixture(autouse=True, params=[True, False], ids=["with DVC", "without"])
def here(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    if request.param:
        Path(".dvc").mkdir()
    SETTING.write_text("1")


def probed() -> Plan:
    """Return the stage's plan as `probe` makes and writes it."""
    plan = FIRST.completed(remembered(STAGE, FIRST.digest))
    plan.write(PATH)
    return plan


def ran(read: dict[str, str] | None = None) -> Plan:
    """Let the stage run; return the plan that DVC notes."""
    probed()
    FilesRead(files={str(SETTING): hash_of(SETTING)} if read is None else read).write(RECORD)
    complete(STAGE, PATH)
    return Plan.read(PATH)


def test_the_next_plan_is_the_one_that_the_stage_ended_with() -> None:
    assert probed() == FIRST
    ended = ran()
    assert ended.also_read == {str(SETTING): hash_of(SETTING)}
    assert probed() == ended


def test_each_content_has_a_plan_of_its_own_and_the_first_one_again() -> None:
    first = ran()
    SETTING.write_text("2")
    assert probed() != first
    second = ran()
    assert probed() == second != first
    SETTING.write_text("1")
    assert probed() == first
    SETTING.unlink()
    assert probed().also_read == {str(SETTING): MISSING}


def test_a_new_name_in_a_folder_that_was_listed_is_another_plan() -> None:
    Path("images").mkdir()
    first = ran({"images/": names_in(Path("images"))})
    assert probed() == first
    Path("images/new.png").touch()
    assert probed() != first
    Path("images/new.png").unlink()
    assert probed() == first


def test_without_the_note_the_plan_is_none_that_has_results_of_another_content() -> None:
    ran()
    [note] = (cache.notes() or Path(".trainparity/read")).rglob("*.json")
    assert note.is_relative_to(".trainparity") or "runs" in note.parts
    note.unlink()
    SETTING.write_text("2")
    assert probed() == FIRST  # which no stage that has read anything ends with


def test_other_code_is_another_note() -> None:
    ran()
    edited = FIRST.model_copy(update={"files": {"mine.py": "4"}})
    assert remembered(STAGE, edited.digest) == {} == remembered("train/other", FIRST.digest)


def test_what_its_code_holds_is_not_counted_twice() -> None:
    optional = FIRST.model_copy(update={"distributions": {"optional": MISSING}})
    read = {"mine.py": UNKNOWN, "src/package/part.py": "3", "optional.py": MISSING, "lib/optional/__init__.py": MISSING}
    assert optional.completed(read) == optional
    others = {"src/package/part.py": "4", "other.py": MISSING}
    assert optional.completed(others).also_read == others


def test_what_nobody_knows_is_another_one_the_next_time() -> None:
    ended = ran({str(SETTING): UNKNOWN})
    assert probed() != ended


def test_of_several_runs_that_have_read_several_contents_nobody_knows_it() -> None:
    FilesRead(files={str(SETTING): "0" * 16}).write(RECORD.parent / "first/files-read.json")
    assert ran().also_read == {str(SETTING): UNKNOWN}


def test_a_damaged_record_and_a_missing_plan_say_nothing() -> None:
    probed()
    RECORD.parent.mkdir(parents=True)
    RECORD.write_text("{")
    complete(STAGE, PATH)
    complete("validate", Path("runs/plan/validate.json"))
    assert probed() == FIRST


def test_dvc_has_the_completed_plan_in_its_cache() -> None:
    """Else it asks before `dvc checkout` replaces the file."""
    ran()
    kept = cache.file(hashlib.md5(PATH.read_bytes()).hexdigest())
    assert kept.exists() == Path(".dvc").exists()
    assert not kept.exists() or kept.read_bytes() == PATH.read_bytes()


@pytest.mark.parametrize(
    ("config", "where"),
    [
        ("", lambda here: here / ".dvc/cache"),
        (
            "[core]\n    analytics = false\n[cache]\n    dir = ../shared\n    type = copy\n",
            lambda here: here / "shared",
        ),
        ("['remote \"x\"']\n    url = s3://b/%s\n[cache]\ndir = /of/all\n", lambda here: Path("/of/all")),
        ("[[", lambda here: here / ".dvc/cache"),
    ],
)
def test_the_cache_is_where_dvc_says(config: str, where: Callable[[Path], Path], tmp_path: Path) -> None:
    Path(".dvc").mkdir(exist_ok=True)
    Path(".dvc/config.local").write_text(config)
    found = cache.folder()
    assert found is not None and found.resolve() == where(tmp_path)
