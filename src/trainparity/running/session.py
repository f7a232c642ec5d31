"""A folder through which we and the processes of one recorded command speak, and the environment that starts it."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import trainparity
from trainparity.attach.session import OPERATORS, Plan, Recorded
from trainparity.attach.watch import FLOAT64, NOT_ROUNDING, SESSION
from trainparity.ownership import owned
from trainparity.records.operators import OperatorLog
from trainparity.running.command import Command
from trainparity.running.errors import RunError
from trainparity.scratch import scratch

_PACKAGE = Path(trainparity.__file__).resolve().parent


class Recording:
    """What the processes of one command left in the folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def environment(self, command: Command) -> dict[str, str]:
        """Return the variables that make a command's Python processes record themselves."""
        given = {**os.environ, **command.environment}
        entries = [str(self._folder / "path"), *filter(None, [given.get("PYTHONPATH")])]
        return {
            SESSION: str(self._folder),
            "PYTHONPATH": os.pathsep.join(entries),
            # A script whose order depends on hashes must repeat itself.
            "PYTHONHASHSEED": given.get("PYTHONHASHSEED") or "0",
        }

    def recorded(self) -> Recorded | None:
        """Return what the training says of its recording; None if no optimizer step was recorded.

        Raises:
            RunError: there was a training, and it can't be recorded.
        """
        for failure in sorted(self._folder.glob("failed-*")):
            raise RunError(f"can't record this training: {failure.read_text(encoding='utf-8')}")
        path = self._folder / "recorded.json"
        found = Recorded.read(path) if path.exists() else None
        if found is None or not found.steps:
            return None
        return found.model_copy(update={"float64_takes_more": (self._folder / NOT_ROUNDING).exists()})

    def operators(self) -> OperatorLog | None:
        """Return the operators of the step that the plan names; None if it was not reached."""
        path = self._folder / OPERATORS
        return OperatorLog.read(path) if path.exists() else None

    @property
    def second_training(self) -> bool:
        """Whether the command started a training after, or beside, the one that was recorded."""
        return (self._folder / "second-training").exists()

    def why_nothing(self) -> str:
        """Say how far the command came on the way to a recorded step."""

        def seen(name: str) -> bool:
            return (self._folder / name).exists()

        if seen("path/too-old"):
            return "its Python is older than 3.11"
        if not seen("python"):
            return (
                "no Python process took part (a program that is not Python; python -I, -E or -S; a container; "
                "another machine)"
            )
        if not seen("torch"):
            return "no Python process imported torch"
        if not seen("optimizer"):
            return "torch was imported, but no optimizer of torch.optim was made"
        if not seen("step"):
            return "an optimizer was made, but it made no step"
        return (
            "the process that trained had not written its trace when the command ended: it was killed, became another "
            "program, or goes on in the background"
        )


@contextmanager
def session(plan: Plan, *, float64: bool = False) -> Iterator[Recording]:
    """Make the folder for one run of a command, in float64 if that is asked for, and remove it afterwards.

    Raises:
        RunError: temporary files lie where Python's search path can't name a folder.
    """
    with scratch() as folder:
        if os.pathsep in str(folder):
            raise RunError(
                f"the folder for temporary files, {folder.parent}, has a {os.pathsep!r} in its name: set TMPDIR"
            )
        if float64:
            (folder / FLOAT64).touch()
        plan.write(folder / "plan.json")
        (folder / "path").mkdir()
        (folder / "path" / "sitecustomize.py").symlink_to(_PACKAGE / "attach" / "site" / "sitecustomize.py")
        (folder / "path" / "trainparity").symlink_to(_PACKAGE)
        with owned(folder / "session", lambda text: None):
            yield Recording(folder)
