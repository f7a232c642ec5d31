import subprocess
from pathlib import Path

from tests.support import warm
from tests.support.runs import prepared, spec
from trainparity.params import Timing
from trainparity.training.spec import EXIT_INTERRUPTED


def test_a_run_that_is_timed_stops_between_two_steps(tmp_path: Path) -> None:
    stopped = {"how": "stop", "after": 12}
    settings = spec(
        tmp_path, prepared(tmp_path), "run", workload="tests.support.misbehaving:Misbehaving", steps=4, options=stopped
    )
    timing = Timing(warmup_steps=1, steps=9_000)
    settings = settings.model_copy(update={"twins": 0, "timing": timing})
    settings.work.mkdir()
    settings.write(tmp_path / "spec.json")
    command = [warm.python(), "-m", "trainparity.training.worker", str(tmp_path / "spec.json")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == EXIT_INTERRUPTED, done.stderr
    assert "stopped while it was timed" in done.stderr
    assert not (tmp_path / "run/state").exists() and not (tmp_path / "run/report").exists()
