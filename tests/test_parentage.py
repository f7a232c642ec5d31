"""A process that ends with the one that started it."""

import subprocess
import sys
from pathlib import Path

import pytest

from trainparity.parentage import FOLLOWS


@pytest.mark.parametrize("killed", [True, False])
@pytest.mark.parametrize(
    ("variable", "module", "says"),
    [
        (f"{FOLLOWS}=$$", "stages validate", "params.yaml"),
        ("DVC_STAGE=validate", "stages validate", "params.yaml"),
        ("", "pipeline.dvc version", "DVC"),
    ],
)
def test_what_was_orphaned_while_it_started_does_nothing(
    tmp_path: Path, variable: str, module: str, says: str, killed: bool
) -> None:
    """The shell is the parent: it ends before the process can look for it, or waits for it."""
    program = f"{sys.executable} -m trainparity.{module}"
    started = f"(sleep 0.5; exec env {variable} {program}) &" if killed else f"env {variable} {program}; true"
    done = subprocess.run(
        ["sh", "-c", started], cwd=tmp_path, start_new_session=True,
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert (says in done.stdout + done.stderr) is not killed, done.stderr


FOLLOWER = """
import sys, time
from trainparity.parentage import end_with_parent, is_ending
end_with_parent()
if sys.argv[1] == "ending":
    is_ending()
print("ready", flush=True)
time.sleep(2.5 if sys.argv[1] == "ending" else 60)
print("done", flush=True)
"""


@pytest.mark.parametrize(("state", "left"), [("waiting", ""), ("ending", "done\n")])
def test_a_process_ends_when_its_parent_is_killed_unless_it_does_already(state: str, left: str) -> None:
    parent = subprocess.Popen(
        ["sh", "-c", '"$0" -c "$1" "$2"; true', sys.executable, FOLLOWER, state],
        stdout=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    assert parent.stdout and parent.stdout.readline() == "ready\n"
    parent.kill()
    assert parent.stdout.read() == left  # until all that write to it have ended
