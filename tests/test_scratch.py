"""Folders that go with the process that made them, or after it."""

import subprocess
import sys
from pathlib import Path

import pytest

from trainparity.running.folder import folder_of_pair, replacing
from trainparity.scratch import scratch

HOLDING = """
import sys, time
from pathlib import Path
from trainparity.scratch import scratch
with scratch(parent=Path(sys.argv[1])) as folder:
    (folder / "half").write_text("written")
    print(folder, flush=True)
    time.sleep(60)
"""


def test_a_folder_goes_at_the_end_and_that_of_a_killed_process_with_the_next_start(tmp_path: Path) -> None:
    other = subprocess.Popen([sys.executable, "-c", HOLDING, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert other.stdout
    theirs = Path(other.stdout.readline().strip())
    with scratch(parent=tmp_path) as mine:
        assert mine.is_dir() and theirs.is_dir()  # its owner lives
        other.kill()
        other.wait()
        with scratch(parent=tmp_path) as later:
            assert sorted(tmp_path.iterdir()) == sorted((mine, later))
    assert not list(tmp_path.iterdir())


def test_what_only_has_such_a_name_stays(tmp_path: Path) -> None:
    (tmp_path / "trainparity-scratch-notes").mkdir()  # of another length
    (tmp_path / "trainparity-scratch-12345678").write_text("a file")
    (tmp_path / "trainparity-87654321").mkdir()  # of another program, or of a version that takes no lock
    (tmp_path / "trainparity-scratch-abcdefgh").symlink_to(tmp_path / "trainparity-scratch-notes")
    with scratch(parent=tmp_path):
        pass
    assert len(list(tmp_path.iterdir())) == 4


def test_a_recording_that_was_killed_between_two_renames_gives_the_earlier_run_back(tmp_path: Path) -> None:
    left = tmp_path / ".a.unfinished-abcdefgh"
    (left / "old").mkdir(parents=True)
    (left / "old/run.json").write_text("earlier")
    with replacing(tmp_path / "b"):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
    assert (tmp_path / "a/run.json").read_text() == "earlier"


def test_what_an_error_keeps_from_being_saved_is_not_removed(tmp_path: Path) -> None:
    def full(folder: Path) -> None:
        raise OSError("full")

    with pytest.raises(OSError, match="full"), scratch(parent=tmp_path, before_removal=full) as folder:
        (folder / "file").write_text("mine")
    assert (folder / "file").read_text() == "mine"


PAIR = """
import os, sys, time
from trainparity.running.folder import folder_of_pair, replacing
with folder_of_pair(None) as folder, replacing(folder / "a"):
    print(folder, flush=True)
    time.sleep(60)
"""


def test_what_a_killed_pair_has_left_goes_with_the_next_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    killed, alive = (subprocess.Popen([sys.executable, "-c", PAIR], stdout=subprocess.PIPE, text=True) for _ in "ab")
    assert killed.stdout and alive.stdout
    left, held = (Path(process.stdout.readline().strip()) for process in (killed, alive) if process.stdout)
    killed.kill()
    killed.wait()
    assert [*left.glob(".a.unfinished-*")]
    with folder_of_pair(None) as folder:  # which may be called as the killed one was
        assert not [*left.glob(".a.unfinished-*")] and [*held.glob(".a.unfinished-*")]
        (folder / "a").mkdir()
    alive.kill()
    alive.wait()
    with folder_of_pair(None):
        pass
    assert [*Path(".trainparity/ab").glob("2*")] == [folder]
