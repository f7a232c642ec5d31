import subprocess
from pathlib import Path
from typing import Any

from tests.support import warm
from tests.support.runs import prepared, spec
from trainparity.params import Timing
from trainparity.training.spec import EXIT_INTERRUPTED


def timed(tmp_path: Path, how: str, **update: Any) -> subprocess.CompletedProcess[str]:
    """Run a worker on a run whose timed phase goes wrong as `tests.support.misbehaving` says."""
    workload, options = "tests.support.misbehaving:Misbehaving", {"how": how, "after": 12}
    settings = spec(tmp_path, prepared(tmp_path), "run", workload=workload, steps=4, options=options)
    timing = Timing(warmup_steps=1, steps=9_000)
    settings = settings.model_copy(update={"twins": 0, "timing": timing, **update})
    settings.work.mkdir()
    settings.write(tmp_path / "spec.json")
    command = [warm.python(), "-m", "trainparity.training.worker", str(tmp_path / "spec.json")]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_a_run_that_is_timed_stops_between_two_steps(tmp_path: Path) -> None:
    done = timed(tmp_path, "stop")
    assert done.returncode == EXIT_INTERRUPTED, done.stderr
    assert "stopped while it was timed" in done.stderr
    assert not (tmp_path / "run/state").exists() and not (tmp_path / "run/report").exists()


def test_what_is_cleaned_up_after_a_failure_has_no_deadline(tmp_path: Path) -> None:
    """A rank that fails as its peer hung would say that it hung itself, wherever it was by then."""
    done = timed(tmp_path, "raise-and-linger", step_deadline_s=1.0)
    assert done.returncode == 1, done.stderr
    assert "ValueError: no loss, and much to clean up" in (tmp_path / "run/failure-0.json").read_text()
    assert not (tmp_path / "run/stacks-0.txt").read_text()
