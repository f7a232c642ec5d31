from pathlib import Path

import pytest

from trainparity.absent import no_such_file


def test_what_makes_a_file_is_said_where_no_folder_above_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert no_such_file(Path("a.json")) == "a.json: no such file"
    assert no_such_file(Path("a.json"), "x makes it") == "a.json: no such file; x makes it"
    assert no_such_file(tmp_path / "a.json", "x makes it") == f"{tmp_path}/a.json: no such file; x makes it"


def test_the_nearest_folder_above_that_has_it_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inside = tmp_path / "one/two/three"
    inside.mkdir(parents=True)
    for folder in (tmp_path, tmp_path / "one"):
        (folder / "a.json").touch()
    monkeypatch.chdir(inside)
    assert (
        no_such_file(Path("a.json"), "x makes it")
        == f"a.json: not in this folder, but in {tmp_path}/one: go there first"
    )


def test_a_current_folder_that_is_gone_hides_no_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert no_such_file(Path("a.json")) == "a.json: no such file"
