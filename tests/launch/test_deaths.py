"""Whom a failed run is blamed on, from what its ranks left behind."""

import signal
from pathlib import Path

import pytest

from trainparity.launch import deaths
from trainparity.launch.deaths import Machine, for_want_of_room, reason
from trainparity.training.spec import CRASH, ENDED, EXIT_NO_ROOM, STACKS, Failure

PEER = "RuntimeError: [gloo/transport/tcp/pair.cc:547] Connection closed by peer"
STACK = """Timeout (0:00:10)!
Thread 0x01 (most recent call first):
  File "/lib/python3.11/threading.py", line 327 in wait
Thread 0x02 (most recent call first):
  File "{file}", line 9 in {function}
  File "/src/trainparity/training/worker.py", line 50 in main
"""


def report(work: Path, rank: int, message: str, time: float = 1.0) -> None:
    traceback = f'Traceback\n  File "model.py", line 3, in loss\n    f()\n{message}'
    Failure(rank=rank, time=time, message=message, traceback=traceback).write(work / f"failure-{rank}.json")


def stack(work: Path, rank: int, file: str = "model.py", function: str = "loss") -> None:
    (work / STACKS.format(rank)).write_text(STACK.format(file=file, function=function))


def blamed(work: Path, codes: dict[int, int]) -> str:
    return reason(work, codes, range(3), Machine())


def test_an_exception_of_its_own_is_blamed_before_a_peers_and_before_what_it_brought_about(tmp_path: Path) -> None:
    report(tmp_path, 0, PEER, time=0.5)  # clocks of machines differ
    report(tmp_path, 1, "ValueError: no", time=1.0)
    stack(tmp_path, 2)  # it hung afterwards, in the grace
    assert blamed(tmp_path, {0: 1, 1: 1, 2: -signal.SIGABRT}) == "rank 1: ValueError: no"


@pytest.mark.parametrize(
    ("code", "says"),
    [
        (-signal.SIGSEGV, "rank 1 was ended by SIGSEGV (a segmentation fault, of compiled code)"),
        (7, "rank 1 ended with exit code 7 and no message, as by os._exit(7)"),
        (EXIT_NO_ROOM, "rank 1 could write no file, nor where: the file system is full, or can't be written"),
    ],
)
def test_a_rank_that_died_silently_is_blamed_before_those_that_lost_it(tmp_path: Path, code: int, says: str) -> None:
    report(tmp_path, 0, PEER)
    assert blamed(tmp_path, {1: code, 0: 1, 2: -signal.SIGTERM}) == says


OURS = Path(deaths.__file__).parents[1]
CRASHED = f"""Fatal Python error: Segmentation fault

{{other}} (most recent call first):
  File "prefetch.py", line 3 in fetch
  File "/lib/python3.11/threading.py", line 982 in run

{{main}} (most recent call first):
{{inside}}  File "/src/site-packages/torch/nn/modules/module.py", line 1852 in inner
{{users}}  File "{OURS}/training/worker.py", line 50 in main
  File "<frozen runpy>", line 198 in _run_module_as_main

Extension modules: numpy._core._multiarray_umath (total: 1)
"""
IN_HOOK = f'  File "{OURS}/parity/recording/intercept.py", line 85 in backward\n'
IN_LOSS = '  File "model.py", line 9 in loss\n'
THREADS = {"other": "Thread 0x01", "main": "Current thread 0x02"}


def crashed(work: Path, text: str, code: int = -signal.SIGSEGV) -> str:
    """Return where a rank is told to have crashed; empty: nowhere."""
    (work / CRASH.format(1)).write_text(text, encoding="ascii")
    return blamed(work, {1: code, 0: 1}).partition(", called from ")[2]


def test_a_crash_is_told_with_the_users_line_that_called_compiled_code(tmp_path: Path) -> None:
    report(tmp_path, 0, PEER)
    (tmp_path / CRASH.format(0)).touch()
    assert crashed(tmp_path, CRASHED.format(**THREADS, inside=IN_HOOK, users=IN_LOSS)) == "model.py:9 loss"
    told = "rank 1 was ended by SIGSEGV (a segmentation fault, of compiled code), called from model.py:9 loss"
    assert blamed(tmp_path, {1: -signal.SIGSEGV, 0: 1}) == told


def test_a_crash_in_another_thread_is_told_with_the_line_of_that(tmp_path: Path) -> None:
    there = CRASHED.format(other="Current thread 0x01", main="Thread 0x02", inside=IN_HOOK, users=IN_LOSS)
    assert crashed(tmp_path, there) == "prefetch.py:3 fetch"


def test_a_crash_in_a_thread_that_runs_no_python_is_told_with_no_line(tmp_path: Path) -> None:
    other = THREADS | {"main": "Thread 0x02"}
    assert not crashed(tmp_path, CRASHED.format(**other, inside=IN_HOOK, users=IN_LOSS))
    bare = "Current thread 0x01 (most recent call first):\n  <no Python frame>\n\n"
    rest = CRASHED.format(**other, inside=IN_HOOK, users=IN_LOSS)
    assert not crashed(tmp_path, rest.replace("Thread 0x01", f"{bare}Thread 0x01"))


def test_a_crash_where_no_line_is_the_users_is_told_with_a_librarys_and_never_with_our_own(tmp_path: Path) -> None:
    text = CRASHED.format(**THREADS, inside=IN_HOOK, users="")
    assert crashed(tmp_path, text) == "/src/site-packages/torch/nn/modules/module.py:1852 inner"
    assert not crashed(tmp_path, "".join(line for line in text.splitlines(keepends=True) if "torch" not in line))


@pytest.mark.parametrize("code", [3, -signal.SIGKILL])
def test_a_line_is_told_of_no_other_death_than_a_crash(tmp_path: Path, code: int) -> None:
    assert not crashed(tmp_path, CRASHED.format(**THREADS, inside="", users=IN_LOSS), code)


@pytest.mark.parametrize(
    ("written", "read"),
    [
        (r"mod\xe8le_\u65e5\u672c.py", "modèle_日本.py"),
        (r"\U0001f600.py", "\U0001f600.py"),
        (r"\udce8\x0a.py", r"\udce8\x0a.py"),  # bytes that are no UTF-8, and a new line
    ],
)
def test_letters_of_other_languages_are_told_as_they_are(tmp_path: Path, written: str, read: str) -> None:
    users = IN_LOSS.replace("model.py", written)
    assert crashed(tmp_path, CRASHED.format(**THREADS, inside="", users=users)) == f"{read}:9 loss"
    stack(tmp_path, 0, written)
    assert f"rank 0 was in {read}:9 loss" in blamed(tmp_path, {0: 1})


def test_a_rank_that_the_launcher_ends_has_told_that_there_was_no_room(tmp_path: Path) -> None:
    report(tmp_path, 0, PEER)
    codes = {0: 1, 1: -signal.SIGTERM}
    assert not for_want_of_room(tmp_path, codes) and for_want_of_room(tmp_path, {1: EXIT_NO_ROOM})
    told = Failure(rank=1, time=2.0, message="OSError: [Errno 28] No space left", traceback="", no_room=True)
    told.write(tmp_path / "failure-1.json")
    assert for_want_of_room(tmp_path, codes)


def test_what_torchs_distributed_package_refuses_is_no_lost_connection(tmp_path: Path) -> None:
    message = "NotImplementedError: ColwiseParallel only supports nn.Linear and nn.Embedding!"
    traceback = f'Traceback\n  File "site-packages/torch/distributed/tensor/parallel/style.py", line 3, in f\n{message}'
    Failure(rank=0, time=1.0, message=message, traceback=traceback).write(tmp_path / "failure-0.json")
    assert blamed(tmp_path, {0: 1}) == f"rank 0: {message}"


def test_a_rank_that_could_not_start_is_told_what_hides_its_modules(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").touch()
    assert blamed(tmp_path, {0: 1}).endswith("as by os._exit(1)")
    for name in ("safetensors.py", "random.py"):
        (tmp_path / name).touch()
    said = blamed(tmp_path, {0: 1})
    assert said.endswith(", or as random.py, safetensors.py here hides what it imports under that name: rename it")


def test_a_rank_that_the_launcher_had_to_kill_is_not_blamed(tmp_path: Path) -> None:
    report(tmp_path, 0, PEER, time=1.0)  # long ago: the grace is over
    (tmp_path / ENDED.format(2)).touch()
    assert blamed(tmp_path, {0: 1, 2: -signal.SIGKILL}).startswith("rank 1 ended with exit code 0 before its training")
    assert blamed(tmp_path, {1: -signal.SIGKILL, 0: 1, 2: -signal.SIGKILL}).startswith("rank 1 was ended by SIGKILL")


@pytest.mark.parametrize("threads", [0, 1])
def test_of_ranks_that_were_stuck_those_that_only_waited_come_last(tmp_path: Path, threads: int) -> None:
    stack(tmp_path, 0, "/site-packages/torch/distributed/distributed_c10d.py", "all_reduce")
    stack(tmp_path, 1)
    whole = STACK.format(file="deadline.py", function="_watch").splitlines(keepends=True)
    (tmp_path / STACKS.format(2)).write_text("".join(whole[: 1 + 2 * threads]))  # it ended while it wrote
    found = blamed(tmp_path, {0: 1, 1: 1, 2: 1})
    assert found.startswith("no step ended in 0:00:10: rank 1 was in model.py:9 loss; rank 0 waited in ")
    assert "rank 2" not in found


def test_a_want_of_memory_is_told_with_its_remedy(tmp_path: Path) -> None:
    report(tmp_path, 0, "OutOfMemoryError: CUDA out of memory")
    assert blamed(tmp_path, {0: 1}).endswith("twice the accumulation_steps are the same training")


def test_a_result_that_no_rank_here_can_explain_is_said(tmp_path: Path) -> None:
    assert reason(tmp_path, {}, (), Machine()) == "no rank of this machine failed, but no rank wrote a result"


def test_of_a_mistake_without_a_traceback_nothing_more_is_printed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = "`loss` of Mine returned None; allowed: a scalar"
    Failure(rank=0, time=1.0, message=said, traceback="").write(tmp_path / "failure-0.json")
    assert blamed(tmp_path, {0: 1}) == f"rank 0: {said}"
    assert capsys.readouterr().err == ""
