"""What a process reads is noted: files that it opens and modules that it imports, not what is installed or its own."""

import importlib
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from trainparity.hashing import hash_of
from trainparity.observed import UNKNOWN, Observed


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("settings.json", "made/data.bin", "code/part_of_mine.py", "elsewhere/setting"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("1")
        os.utime(name, (0, 0))
    return tmp_path


def read(observed: Observed) -> dict[str, str]:
    """Return what was noted below the working directory: of modules, the tests themselves are noted too."""
    return {name: digest for name, digest in observed.files().items() if not Path(name).is_absolute()}


def test_what_is_opened_and_imported_is_noted(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    observed = Observed([Path("made")])
    Path("settings.json").read_text()
    Path("made/data.bin").read_bytes()
    assert read(observed) == {"settings.json": hash_of(Path("settings.json"))}
    monkeypatch.syspath_prepend("code")
    importlib.import_module("part_of_" + "mine")
    assert read(observed).keys() == {"settings.json", "code/part_of_mine.py"}
    importlib.invalidate_caches()
    later = Observed()  # Python opens the compiled file by now
    assert read(later).keys() == {"code/part_of_mine.py"}
    del sys.modules["part_of_mine"]


def test_a_folder_is_left_and_a_link_followed(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("made/link.json").symlink_to(here / "settings.json")
    observed = Observed()
    monkeypatch.chdir("elsewhere")
    Path("setting").read_text()
    Path("../made/link.json").read_text()
    os.close(os.open(b"setting", os.O_RDONLY))
    assert read(observed).keys() == {"elsewhere/setting", "made/link.json"}


@pytest.mark.parametrize("mode", ["w", "a", "r+"])
def test_what_it_writes_itself_is_not(here: Path, mode: str) -> None:
    observed = Observed()
    with Path("settings.json").open(mode) as file:
        file.write("2")
    Path("settings.json").read_text()
    assert read(observed) == {}


def test_of_a_file_that_was_changed_meanwhile_nobody_knows_what_was_read(here: Path) -> None:
    observed = Observed()
    Path("settings.json").read_text()
    time.sleep(0.02)
    os.utime("settings.json")
    assert read(observed) == {"settings.json": UNKNOWN}


def test_what_is_gone_can_not_be_told(here: Path) -> None:
    observed = Observed()
    Path("settings.json").read_text()
    Path("settings.json").unlink()
    with pytest.raises(FileNotFoundError):
        Path("never").read_text()
    assert read(observed) == {}


def test_python_and_what_is_installed_count_for_nothing(here: Path) -> None:
    """In a new process: this one has imported other tests' modules."""
    script = "from trainparity.observed import Observed as O; o = O(); import json, numpy, pydantic; print(o.files())"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "{}\n"
