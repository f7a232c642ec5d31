"""What a process reads is noted: files that it opens and modules that it imports, not what is installed or its own."""

import importlib
import importlib.util
import multiprocessing
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from trainparity.hashing import MISSING, hash_of, names_in
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


@pytest.mark.parametrize("mode", ["w", "a", "r+", "a+"])
def test_what_it_writes_itself_is_not(here: Path, mode: str) -> None:
    observed = Observed()
    with Path("settings.json").open(mode) as file:
        file.write("2")
    Path("settings.json").read_text()
    assert read(observed) == {}


@pytest.mark.parametrize("mode", ["r+", "a+"])
def test_what_it_could_write_and_does_not_is_read(here: Path, mode: str) -> None:
    """As an array that NumPy maps."""
    observed = Observed()
    with Path("settings.json").open(mode) as file:
        file.read()
    assert read(observed) == {"settings.json": hash_of(Path("settings.json"))}


def edited() -> None:
    os.utime("settings.json")


def replaced_by_an_older_file() -> None:
    Path("elsewhere/setting").rename("settings.json")


def led_elsewhere() -> None:
    Path("other").symlink_to("elsewhere/setting")
    Path("other").rename("settings.json")


def rewritten_at_the_same_time() -> None:
    times = Path("settings.json").stat()
    Path("settings.json").write_text("3")
    os.utime("settings.json", ns=(times.st_atime_ns, times.st_mtime_ns))


def removed() -> None:
    Path("settings.json").unlink()


@pytest.mark.parametrize(
    "change", [edited, replaced_by_an_older_file, led_elsewhere, rewritten_at_the_same_time, removed]
)
def test_of_a_file_that_was_changed_meanwhile_nobody_knows_what_was_read(
    here: Path, change: Callable[[], None]
) -> None:
    observed = Observed()
    Path("settings.json").read_text()
    time.sleep(0.02)
    by_another_process(change)
    assert read(observed) == {"settings.json": UNKNOWN}


def by_another_process(work: Callable[[], None]) -> None:
    process = multiprocessing.get_context("fork").Process(target=work)
    process.start()
    process.join()
    assert process.exitcode == 0


def test_what_it_makes_or_removes_itself_is_not_its_input(here: Path) -> None:
    observed = Observed()
    Path("settings.json").read_text()
    Path("settings.json").unlink()
    with pytest.raises(FileNotFoundError):
        Path("cache").read_text()
    Path("unfinished").write_text("1")
    Path("unfinished").replace("cache")
    by_another_process(lambda: Path("left").write_text("1") and None)
    Path("left").read_text()
    by_another_process(lambda: Path("left").unlink())
    assert read(observed) == {}


def test_what_is_asked_for_and_not_there_is_missing(here: Path) -> None:
    observed = Observed()
    with pytest.raises(FileNotFoundError):
        Path("override.json").read_text()
    with pytest.raises(OSError):
        Path("settings.json/x").read_text()
    with pytest.raises(OSError):
        os.open("named/from/a/folder", os.O_RDONLY)
    assert read(observed) == {"override.json": MISSING, "settings.json/x": MISSING}
    by_another_process(lambda: Path("override.json").write_text("1") and None)
    assert read(observed)["override.json"] == UNKNOWN


def test_a_module_that_is_asked_for_and_not_there_is_missing(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("asks.py").write_text(
        "import importlib.util\nimportlib.util.find_spec('opti' + 'onal')\nimport json.optional2"
    )
    monkeypatch.syspath_prepend(str(here))
    observed = Observed()
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("asks")
    assert read(observed) == {
        "asks.py": hash_of(Path("asks.py")), "optional.py": MISSING, "optional/__init__.py": MISSING
    }  # fmt: skip


def test_a_module_that_is_run_from_its_file_is_noted_when_it_is_compiled_too(here: Path) -> None:
    for _ in range(2):
        observed = Observed()
        run_from("code/part_of_mine.py")
        assert read(observed) == {"code/part_of_mine.py": hash_of(Path("code/part_of_mine.py"))}
    assert list(Path("code").rglob("*.pyc"))


@pytest.fixture(autouse=True)
def compiling(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", False)


def run_from(file: str) -> None:
    spec = importlib.util.spec_from_file_location("plugin", file)
    assert spec and spec.loader
    spec.loader.exec_module(importlib.util.module_from_spec(spec))


def test_the_working_directory_may_itself_be_made(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As DVC copies a project to train an experiment in, `.dvc/tmp/exps/...`."""
    (here / ".dvc/tmp/copy/.dvc/tmp").mkdir(parents=True)
    monkeypatch.chdir(here / ".dvc/tmp/copy")
    Path("setting").write_text("1")
    Path(".dvc/tmp/lock").write_text("1")
    observed = Observed()
    Path("setting").read_text()
    Path(".dvc/tmp/lock").read_text()
    assert read(observed).keys() == {"setting"}


def test_the_working_directory_may_be_an_environment(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "prefix", str(here))
    Path("lib/python3/site-packages").mkdir(parents=True)
    Path("lib/python3/site-packages/data").write_text("1")
    observed = Observed()
    Path("settings.json").read_text()
    Path("lib/python3/site-packages/data").read_text()
    assert read(observed).keys() == {"settings.json"}


def test_what_lies_with_a_module_from_elsewhere_is_noted(
    here: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    outside = tmp_path_factory.mktemp("outside")
    for name in ("of_others/__init__.py", "of_others/deep/table.json", "alone_there.py", "beside.json", "no/file.json"):
        (outside / name).parent.mkdir(exist_ok=True)
        (outside / name).write_text("")
    monkeypatch.syspath_prepend(str(outside))
    importlib.import_module("of_others")
    importlib.import_module("alone_there")
    observed = Observed()
    for name in ("of_others/deep/table.json", "beside.json", "no/file.json"):
        (outside / name).read_text()
    noted = {Path(name).relative_to(outside).as_posix() for name in observed.files() if str(outside) in name}
    assert noted == {"of_others/__init__.py", "of_others/deep/table.json", "alone_there.py", "beside.json"}
    del sys.modules["of_others"], sys.modules["alone_there"]


def test_python_and_what_is_installed_count_for_nothing(here: Path) -> None:
    """In a new process: this one has imported other tests' modules."""
    script = "from trainparity.observed import Observed as O; o = O(); import json, numpy, pydantic; print(o.files())"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "{}\n"


def test_a_folder_that_is_listed_counts_by_the_names_in_it(here: Path) -> None:
    observed = Observed([Path("made")])
    assert [*Path("elsewhere").glob("*")] and [*Path("made").iterdir()] and [*Path().glob("*.json")]
    with pytest.raises(FileNotFoundError):
        next(Path("later").iterdir())
    noted = read(observed)
    assert noted == {"elsewhere/": names_in(Path("elsewhere")), "later/": MISSING}
    Path("elsewhere/setting").write_text("2")
    by_another_process(lambda: Path("elsewhere/.hidden").touch())
    assert names_in(Path("elsewhere")) == noted["elsewhere/"]
    by_another_process(lambda: Path("elsewhere/more").touch())
    assert read(observed) == noted  # it was not there when the process looked
    assert names_in(Path("elsewhere")) != noted["elsewhere/"]


def test_a_folder_that_the_process_fills_itself_is_not_its_input(here: Path) -> None:
    observed = Observed()
    Path("elsewhere/cache").mkdir()
    assert [*Path("elsewhere").iterdir()]
    assert read(observed) == {}


def test_where_python_looks_for_modules_is_not_what_the_program_lists(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # else the process fills that folder itself
    monkeypatch.syspath_prepend("code")
    observed = Observed()
    importlib.import_module("part_of_mine")
    assert read(observed).keys() == {"code/part_of_mine.py"}
    del sys.modules["part_of_mine"]
