"""`make gpu`, rehearsed where there is no GPU."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch

SCRIPT = Path(__file__).parents[1] / "benchmarks" / "gpu.py"
MARK = "open({path!r}, 'a').write('x')"


@pytest.fixture
def day() -> ModuleType:
    spec = importlib.util.spec_from_file_location("gpu_day", SCRIPT)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def called(
    day: ModuleType, monkeypatch: pytest.MonkeyPatch, state: Path, commands: dict[str, str], *arguments: str
) -> int:
    monkeypatch.chdir(SCRIPT.parents[1])
    monkeypatch.setattr(day, "REHEARSAL", [day.Piece(name, ["-c", command]) for name, command in commands.items()])
    monkeypatch.setattr(sys, "argv", ["gpu.py", "--rehearse", "--state", str(state), *arguments])
    return int(day.main())


def test_what_is_done_is_not_repeated_and_what_failed_is(
    day: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ran = {name: tmp_path / name for name in ("good", "bad")}
    commands = {
        "good": MARK.format(path=str(ran["good"])),
        "bad": f"{MARK.format(path=str(ran['bad']))}; raise SystemExit(7)",
    }
    assert called(day, monkeypatch, tmp_path / "state", commands) == 3
    assert called(day, monkeypatch, tmp_path / "state", commands) == 3
    assert (ran["good"].read_text(), ran["bad"].read_text()) == ("x", "xx")
    assert "bad: failed with exit code 7" in capsys.readouterr().out
    assert called(day, monkeypatch, tmp_path / "state", commands, "--only", "good", "--again") == 0
    assert ran["good"].read_text() == "xx"


def test_a_piece_that_takes_too_long_is_stopped_as_by_sigterm_and_the_rest_is_left(
    day: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = tmp_path / "checkpoint"
    long = (
        "import signal, sys, time\n"
        f"signal.signal(signal.SIGTERM, lambda *_: (open({str(kept)!r}, 'w').write('kept'), sys.exit(143)))\n"
        "time.sleep(60)"
    )
    assert called(day, monkeypatch, tmp_path, {"long": long, "later": "pass"}, "--minutes", "0.1") == 3
    assert kept.read_text() == "kept"
    told = capsys.readouterr().out
    assert "long: stopped after 6 s" in told and "later: left for the next call" in told


@pytest.mark.slow
def test_the_day_is_rehearsed_on_a_small_model(tmp_path: Path) -> None:
    command = [sys.executable, SCRIPT, "--rehearse", "--state", tmp_path]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ, check=False)
    logs = {path.stem: path.read_text() for path in (tmp_path / "logs").iterdir()}
    assert done.returncode == 0, (done.stdout, logs)
    assert "ddpm" in logs["where-time-goes"]
    assert "article_over_ours" in logs["offload"]


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_nothing_is_called_done(tmp_path: Path) -> None:
    command = [sys.executable, SCRIPT, "--state", tmp_path / "state"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2 and "no NVIDIA GPU" in done.stderr
    assert not (tmp_path / "state").exists()


def test_every_piece_names_a_script_or_module_that_is_there(day: ModuleType) -> None:
    assert day.CUDA_TESTS
    for piece in day.PIECES:
        first, *rest = piece.command
        found = importlib.util.find_spec(rest[0]) if first == "-m" else (SCRIPT.parents[1] / first).exists()
        assert found, piece.name
