import errno
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from trainparity.records.files import is_stream, move_folder, replacing, write_text


def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_text(path, "old")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, hard))
    try:
        with pytest.raises(OSError, match="File too large"):
            write_text(path, "new" * (1 << 16))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert path.read_text() == "old"
    write_text(path, "new")
    assert path.read_text() == "new" and [p.name for p in tmp_path.iterdir()] == ["file"]


def test_a_folder_is_replaced_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "deep/folder"

    def write(text: str, *, fails: bool = False) -> None:
        with replacing(path) as unfinished:
            unfinished.mkdir()
            (unfinished / "file").write_text(text)
            if fails:
                raise OSError("disk full")

    write("old")
    with pytest.raises(OSError, match="disk full"):
        write("new", fails=True)
    assert (path / "file").read_text() == "old" and list(path.parent.iterdir()) == [path]
    write("new")
    assert (path / "file").read_text() == "new" and list(path.parent.iterdir()) == [path]


def test_what_a_killed_writer_left_behind_does_not_stay(tmp_path: Path) -> None:
    program = f"""
import os, pathlib, signal
from trainparity.records.files import replacing
with replacing(pathlib.Path({str(tmp_path / "file")!r})) as unfinished:
    unfinished.write_text("half")
    os.kill(os.getpid(), signal.SIGKILL)
"""
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == -signal.SIGKILL
    assert [path.read_text() for path in tmp_path.iterdir()] == ["half"] and not (tmp_path / "file").exists()
    write_text(tmp_path / "file", "whole")
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("file", "whole")]


def test_several_may_write_one_file_at_the_same_time(tmp_path: Path) -> None:
    def write(letter: str) -> None:
        for _ in range(100):
            write_text(tmp_path / "file", letter * 1000)
            assert len(set((tmp_path / "file").read_text())) == 1

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, "abcd"))
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_folder_whose_writer_was_killed_between_two_renames_comes_back(tmp_path: Path) -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    folder(tmp_path / f".state.{gone.pid}-{gone.pid}.old", "old")
    folder(tmp_path / ".state.mine.tmp", "not ours")
    with pytest.raises(OSError, match="full"), replacing(tmp_path / "state"):
        raise OSError("full")
    assert (tmp_path / "state/file").read_text() == "old"
    assert sorted(path.name for path in tmp_path.iterdir()) == [".state.mine.tmp", "state"]


def folder(path: Path, content: str) -> Path:
    path.mkdir(parents=True)
    (path / "file").write_text(content)
    return path


def test_a_moved_folder_replaces_what_is_there_and_a_link_leads_to_it(tmp_path: Path) -> None:
    folder(tmp_path / "bigger/state", "old")
    (tmp_path / "state").symlink_to("bigger/state")
    for content in ("first", "second"):
        move_folder(folder(tmp_path / "work", content), tmp_path / "state")
        assert (tmp_path / "bigger/state/file").read_text() == content
    assert (tmp_path / "state").is_symlink() and not (tmp_path / "work").exists()
    assert sorted(path.name for path in (tmp_path / "bigger").iterdir()) == ["state"]


def test_a_folder_moves_to_another_file_system_and_stays_where_that_is_full(tmp_path: Path) -> None:
    if not (other := Path("/dev/shm")).is_dir() or other.stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip("one file system only")
    with tempfile.TemporaryDirectory(dir=other) as there:
        move_folder(folder(tmp_path / "work", "new"), Path(there) / "state")
        assert (Path(there) / "state/file").read_text() == "new"


@pytest.mark.parametrize("fault", ["rename", "copy"])
def test_a_move_that_fails_leaves_both_folders(fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target, source = folder(tmp_path / "state", "old"), folder(tmp_path / "work", "new")
    rename, move = Path.rename, shutil.move

    def refuse(path: Path, to: Path) -> Path:
        if path.suffix == ".tmp":
            raise OSError(errno.EBUSY, "busy")
        return rename(path, to)

    def full(source: Path, to: Path) -> None:
        shutil.copytree(source, to)
        raise shutil.Error([("a", "b", "No space left on device")])

    if fault == "rename":
        monkeypatch.setattr(Path, "rename", refuse)
    else:
        monkeypatch.setattr(shutil, "move", full)
    with pytest.raises(OSError):
        move_folder(source, target)
    monkeypatch.setattr(shutil, "move", move)
    assert (target / "file").read_text() == "old" and (source / "file").read_text() == "new"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["state", "work"]


def test_what_is_no_file_is_written_into_and_stays(tmp_path: Path) -> None:
    """As /dev/null, which root could replace; not tried with that one."""
    pipe, read = tmp_path / "pipe", []
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: read.append(pipe.read_text()))
    reader.start()
    write_text(pipe, "answer")
    reader.join()
    assert (read, pipe.is_fifo(), list(tmp_path.iterdir())) == (["answer"], True, [pipe])
    with (tmp_path / "file").open("w") as file:
        write_text(Path(f"/dev/fd/{file.fileno()}"), "answer")
    assert (tmp_path / "file").read_text() == "answer"
    (tmp_path / "leads to it").symlink_to("/dev/stdout")
    (tmp_path / "leads to itself").symlink_to("leads to itself")
    assert all(map(is_stream, (Path("/dev/null"), Path("/dev/stdout"), tmp_path / "leads to it")))
    assert not any(is_stream(tmp_path / name) for name in ("file", "none", "leads to itself"))


def test_a_link_to_a_file_stays_and_the_file_is_written(tmp_path: Path) -> None:
    link, file = tmp_path / "link", tmp_path / "file"
    link.symlink_to("file")
    write_text(link, "answer")
    assert link.is_symlink() and file.read_text() == "answer"


def test_what_is_no_text_is_written_as_its_code(tmp_path: Path) -> None:
    write_text(tmp_path / "page", "a name of byte \udcff")
    assert (tmp_path / "page").read_text(encoding="utf-8") == r"a name of byte \udcff"


def test_an_error_names_the_file_that_was_asked_for(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="too long") as raised, replacing(tmp_path / "folder") as unfinished:
        unfinished.mkdir()
        (unfinished / ("x" * 300)).touch()
    assert raised.value.filename == str(tmp_path / "folder" / ("x" * 300))


def test_a_rename_that_fails_names_that_file_once(tmp_path: Path) -> None:
    """As over a user's quota; both names would be the same one."""
    with pytest.raises(FileNotFoundError) as raised, replacing(tmp_path / "file"):
        pass  # nothing is written
    assert str(raised.value).endswith(f"No such file or directory: {str(tmp_path / 'file')!r}")
