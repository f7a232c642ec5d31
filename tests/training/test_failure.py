"""What a rank says of its own death, and what of it is the machine's refusal to write a file."""

import errno
import os
import subprocess
from pathlib import Path

import pytest
from torch._inductor.exc import CppCompileError, InductorError

from tests.support import warm
from tests.support.runs import spec
from trainparity.training.failure import is_for_want_of_room, report, sentence
from trainparity.training.spec import CRASH, Failure
from trainparity.workloads.checked import WorkloadError


def raised(error: BaseException, cause: BaseException | None = None) -> BaseException:
    try:
        raise error from cause
    except BaseException as found:
        return found


def compiling(output: str) -> BaseException:
    """Return what torch.compile raises where the compiler of C++ wrote this; no other error is in the chain."""
    return raised(InductorError(CppCompileError(["g++", "header.hpp"], output), None))


@pytest.mark.parametrize(("error", "traced"), [(WorkloadError("`loss` of Mine"), False), (ValueError("no"), True)])
def test_a_mistake_that_its_message_names_leaves_no_traceback_of_ours(
    error: Exception, traced: bool, tmp_path: Path
) -> None:
    of = spec(tmp_path, tmp_path / "data", "a")
    of.work.mkdir(parents=True)
    try:
        raise error
    except Exception as found:
        report(of, 0, sentence(found))
    assert ("Traceback" in Failure.read(of.work / "failure-0.json").traceback) is traced


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
def test_a_full_disk_and_any_other_limit_is_for_want_of_room(number: int) -> None:
    assert is_for_want_of_room(raised(RuntimeError("no checkpoint"), OSError(number, os.strerror(number), "state")))


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_what_a_compiler_could_not_write_is_for_want_of_room(number: int) -> None:
    assert is_for_want_of_room(compiling(f"fatal error: when writing output to header.i: {os.strerror(number)}"))


@pytest.mark.parametrize(
    "error",
    [
        compiling("kernel.cpp:3:1: error: expected ';' before '}' token"),
        ValueError(os.strerror(errno.ENOSPC)),  # the user's own words
        FileNotFoundError(errno.ENOENT, "No such file or directory", "data.csv"),
    ],
)
def test_another_error_is_not_for_want_of_room(error: BaseException) -> None:
    assert not is_for_want_of_room(error)
    assert "set " not in sentence(error)


@pytest.mark.parametrize("name", ["TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR"])
@pytest.mark.parametrize("refused", ["nowhere", "nowhere/cache", "nowhere/cache/ab/kernel.cpp"])
def test_a_compilers_cache_that_is_refused_is_named_by_its_variable_and_fails_no_run(
    name: str, refused: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = str(tmp_path / "nowhere/cache")
    monkeypatch.setenv(name, cache)
    cause = FileNotFoundError(errno.ENOENT, "No such file or directory", str(tmp_path / refused))
    error = raised(RuntimeError("no kernel"), cause)
    assert sentence(error).endswith(f"; set {name}, which is {cache}, to a folder that can be written")
    assert is_for_want_of_room(error)


OF_CHILDREN = """
import faulthandler, os, pathlib, types
from trainparity.training.failure import tell_crashes
def crashing_child():
    if not os.fork():
        os.abort()
    os.wait()
work = pathlib.Path()
tell_crashes(types.SimpleNamespace(work=work), 1)
crashing_child()
with open("own.txt", "w") as own:  # the user's handler
    faulthandler.enable(own)
    crashing_child()
tell_crashes(types.SimpleNamespace(work=work), 2)
os.abort()
"""


def test_a_child_that_crashes_tells_nothing_for_its_parent(tmp_path: Path) -> None:
    done = subprocess.run([warm.python(), "-c", OF_CHILDREN], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (tmp_path / CRASH.format(1)).read_text() == ""
    told = (done.stderr, (tmp_path / "own.txt").read_text(), (tmp_path / CRASH.format(2)).read_text())
    assert [text.count("Fatal Python error: Aborted") for text in told] == [1, 1, 1]
