"""How commands and stages end."""

import errno
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from io import BytesIO, TextIOWrapper
from pathlib import Path

import pytest

from tests.support import warm
from trainparity.cli.app import app
from trainparity.errors import StoppedBySignal, UserError
from trainparity.exits import DEFECT, exit_code
from trainparity.scratch import scratch


def raising(error: BaseException) -> Callable[[], None]:
    def work() -> None:
        raise error

    return work


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_is_said_in_one_line_after_tidying_up(
    number: signal.Signals, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def work() -> None:
        with scratch(parent=tmp_path):
            signal.raise_signal(number)

    before = signal.getsignal(number)
    assert exit_code(work) == 128 + number and signal.getsignal(number) is before
    assert capsys.readouterr().err == f"stopped by {number.name}\n"
    assert not list(tmp_path.iterdir())


SIGNALLED_WITHIN_IMPORTS = """
import os, sys
from trainparity.__main__ import main

class Sender:
    def find_spec(self, name, path, target=None):
        if name == "trainparity.cli.app":
            os.kill(os.getpid(), {number})

sys.meta_path.insert(0, Sender())
sys.argv = ["trainparity", *{arguments}]
main()
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("arguments", [["--version"], ["validate"]])
def test_a_signal_while_a_command_is_imported_is_said_in_one_line(number: int, arguments: list[str]) -> None:
    program = SIGNALLED_WITHIN_IMPORTS.format(number=int(number), arguments=arguments)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 128 + number, done
    assert len(done.stderr.splitlines()) == 1 and signal.Signals(number).name in done.stderr


SIGNALLED_BEFORE_THE_COMMAND = """
import os, sys
from typer.core import TyperGroup

from trainparity.__main__ import main

def signalled(*arguments, plain=TyperGroup.parse_args):
    os.kill(os.getpid(), {number})
    return plain(*arguments)

TyperGroup.parse_args = signalled
sys.argv = ["trainparity", "--version"]
main()
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_while_arguments_are_read_is_said_in_one_line(number: int) -> None:
    program = SIGNALLED_BEFORE_THE_COMMAND.format(number=int(number))
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (128 + number, f"stopped by {signal.Signals(number).name}\n"), done


@pytest.mark.parametrize("returned", [None, 0, 1, 2])
def test_what_the_work_returns_is_the_code(returned: int | None) -> None:
    assert exit_code(lambda: returned) == (returned or 0)


@pytest.mark.parametrize(
    ("error", "code", "says"),
    [
        (UserError("params.yaml: no such file"), 2, "params.yaml: no such file\n"),
        (UserError("\x1b]0;title\x07.png: no image"), 2, "\ufffd]0;title\ufffd.png: no image\n"),
        (StoppedBySignal(signal.SIGTERM, "nothing is kept"), 143, "stopped by SIGTERM; nothing is kept\n"),
        (OSError(errno.ENOSPC, "No space left on device", "runs/a"), 2, "runs/a: No space left on device\n"),
        (
            FileNotFoundError(errno.ENOENT, "No such file or directory"),
            2,
            "the current folder: No such file or directory\n",
        ),
        (
            UnicodeEncodeError("utf-8", "runs/\udcff", 5, 6, "surrogates not allowed"),
            2,
            "'runs/\\udcff' is no text in utf-8\n",
        ),
        (OSError(errno.EAGAIN, "Try again"), 2, "the operating system refused: Try again\n"),  # as a fork too many
    ],
)
def test_an_error_of_the_caller_or_the_machine_is_one_line(
    error: Exception, code: int, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_code(raising(error)) == code
    assert capsys.readouterr().err == says


def test_a_name_that_is_no_utf_8_can_be_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    written = BytesIO()
    monkeypatch.setattr(sys, "stdout", TextIOWrapper(written, encoding="utf-8"))
    assert exit_code(lambda: print("runs/\udcff")) == 0 and written.getvalue() == b"runs/\\udcff\n"


@pytest.mark.parametrize(
    "error",
    [ValueError("no"), OSError(errno.EBADF, "Bad file descriptor"), MemoryError(), GeneratorExit(), SystemExit(0)],
)
def test_a_defect_is_none_of_the_verdicts_codes(error: BaseException, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(raising(error)) == DEFECT
    said = capsys.readouterr().err
    assert "Traceback" in said
    assert "This is a defect of trainparity" in said


def run(*arguments: str, **options: object) -> "subprocess.CompletedProcess[str]":
    command = [warm.python(), "-m", "trainparity.cli", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, **options)  # type: ignore[call-overload]


@pytest.mark.parametrize(
    "command", [["doctor", "--json", "-"], ["compare", "no-such", "run"], ["--help"]], ids=lambda words: words[0]
)
def test_a_reader_that_leaves_is_no_verdict(command: list[str]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb") as output:
        done = subprocess.run(
            [sys.executable, "-m", "trainparity.cli", *command],
            stdout=output, stderr=subprocess.PIPE, text=True, check=False,
        )  # fmt: skip
    assert (done.returncode, done.stderr) == (128 + signal.SIGPIPE, "")


WRONG = {
    "ab": ["python -c pass", "--base", "main"],
    "check": ["nothing.there:Model", "--against", "ddp:2"],
    "compare": ["nowhere", "there"],
    "controls": ["--seeds", "0"],
    "curves": ["nowhere", "--against", "there"],
    "doctor": ["nowhere.yaml"],
    "export": ["nowhere"],
    "init": ["taken"],
    "join": [],
    "plots": [],
    "repro": [],
    "run": ["folder", "--", "no-such-command"],
    "show": ["nowhere"],
    "status": [],
    "studies": ["nothing"],
    "train": ["ddp"],
    "validate": ["nowhere.yaml"],
}


def test_every_command_is_tried() -> None:
    assert {command.callback.__name__ for command in app.registered_commands if command.callback} == WRONG.keys()


@pytest.mark.parametrize("command", WRONG)
def test_a_mistake_ends_with_2_and_without_a_traceback(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken/params.yaml").touch()
    for name in ("TRAINPARITY_NODES", "TRAINPARITY_RENDEZVOUS"):
        monkeypatch.delenv(name, raising=False)
    done = run(command, *WRONG[command], cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    assert done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize(
    "body", ["{0}", "try: {0}\n        except Exception: pass"], ids=["plain", "that handles errors"]
)
def test_a_signal_in_the_middle_of_a_workloads_data_is_no_error_of_it(
    body: str, number: signal.Signals, tmp_path: Path
) -> None:
    (tmp_path / "own.py").write_text(
        "import signal\nfrom trainparity.workloads import Workload\nclass Own(Workload):\n"
        "    build_model = loss = optimizer = None\n    def data(self):\n"
        f"        {body.format(f'signal.raise_signal({number.value})')}\n        return {{}}\n"
    )
    done = run("check", "own:Own", "--against", "ddp:2", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (128 + number, f"stopped by {number.name}\n")


def test_a_stage_that_fails_ends_the_pipeline_with_2(tmp_path: Path) -> None:
    """DVC's own code is 255."""
    (tmp_path / "dvc.yaml").write_text("stages: {good: {cmd: echo fine}, bad: {cmd: exit 7}}")
    subprocess.run([warm.python(), "-m", "dvc", "init", "--quiet", "--no-scm"], cwd=tmp_path, check=True)
    done = run("repro", cwd=tmp_path)
    assert done.returncode == 2 and "exited with 7" in done.stderr, done
    assert (one := run("repro", "good", cwd=tmp_path)).returncode == 0 and "fine" in one.stdout, one
    assert run("repro", "good", "bad", cwd=tmp_path).returncode == run("repro", "better", cwd=tmp_path).returncode == 2


@pytest.mark.parametrize(
    ("pipeline", "said"),
    [
        ("", "has no `stages`"),
        ("[]", "has no `stages`"),
        ("stages: null", "has no `stages`"),
        ("{" * 3000, "dvc.yaml: n"),
    ],
)
def test_a_pipeline_without_stages_is_not_up_to_date(pipeline: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "dvc.yaml").write_text(pipeline)
    done = run("repro", cwd=tmp_path)
    assert done.returncode == 2 and f"{said}" in done.stderr and not done.stdout, done


def test_without_dvc_no_stage_is_taken_alone(tmp_path: Path) -> None:
    done = run("repro", "compare", cwd=tmp_path)
    assert done.returncode == 2 and f"there is no dvc.yaml in {tmp_path}" in done.stderr, done


@pytest.mark.slow
@pytest.mark.parametrize("command", [["validate", "nowhere.yaml"], ["show", "nowhere"], ["compare", "a", "b"]])
def test_a_stderr_that_is_full_or_closed_changes_no_code(command: list[str], tmp_path: Path) -> None:
    program = [sys.executable, "-m", "trainparity.cli", *command]
    reading, writing = os.pipe()
    os.close(reading)
    with Path("/dev/full").open("w") as full, os.fdopen(writing, "w") as closed:
        for stderr in (full, closed):
            done = subprocess.run(program, stdout=subprocess.DEVNULL, stderr=stderr, cwd=tmp_path, check=False)
            assert done.returncode == 2


@pytest.mark.slow
@pytest.mark.parametrize("named", [False, True])
def test_a_call_that_ends_early_leaves_what_is_kept_by_default(named: bool, tmp_path: Path) -> None:
    """But not an earlier answer at a place that it is given, which would be taken for its own."""
    kept, scratch = tmp_path / "benchmarks/results/controls.json", tmp_path / "scratch"
    for folder in (kept.parent, scratch):
        folder.mkdir(parents=True)
    (place := tmp_path / "answer.json" if named else kept).touch()
    command = [sys.executable, "-m", "trainparity.cli", "controls", *(["--json", str(place)] if named else [])]
    process = subprocess.Popen(
        command, cwd=tmp_path, stderr=subprocess.DEVNULL, env=os.environ | {"TMPDIR": str(scratch)}
    )
    deadline = time.monotonic() + 60
    while not any(scratch.iterdir()):  # its work has begun
        assert time.monotonic() < deadline
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=60) == 143
    assert place.exists() != named
