"""The folder through which `trainparity run` and the processes that it records speak."""

import os
from contextlib import suppress
from pathlib import Path

from trainparity.records.base import Record

OPERATORS = "operators.json"
"""In the session's folder: the operators of the step that the plan names."""


class Plan(Record):
    """What the recorded processes are told."""

    folder: Path
    """Where the trace is written; absolute, as scripts change their working directory."""
    steps: int
    """Optimizer steps after which the training is stopped; 0: it runs to its own end."""
    interval: int
    twin: int
    outside: Path | None = None
    """A folder from which nothing may be run: the working tree beside a revision's."""
    operators: int | None = None
    """The step, from 0, whose operators are logged as `operators.json` in the session's folder; null: none."""


class Recorded(Record):
    """What the main rank says of its recording when it ends."""

    model: str
    optimizer: str
    num_parameters: int
    steps: int
    beside: list[str]
    """Steps, models and optimizers that were recorded beside the first."""
    stopped: bool
    """Whether the recording stopped the script, which had not ended by itself."""
    not_recorded: list[str]
    """Optimizers that made steps which the trace does not hold."""
    ended: str
    """Why the recording ended before the script did, other than for its steps; empty: it did not."""
    outside: list[str]
    """Files from the folder `Plan.outside` that were run: the script, or modules that it imported."""
    float64_takes_more: bool = False
    """Whether a run in float64 lost more than the rounding of single precision: a coarser format, compiled code."""


class Session:
    """The folder, as a recorded process uses it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.plan = Plan.read(folder / "plan.json")

    @property
    def over(self) -> bool:
        """Whether the recorded command has ended, and left this process behind."""
        return not self.folder.exists()

    def mark(self, name: str) -> None:
        """Note that some process has come so far."""
        with suppress(FileNotFoundError):  # it is over
            (self.folder / name).touch()

    def fail(self, message: str) -> None:
        """Say why this training can't be recorded, unless that is said: what fails then follows from it."""
        path = self.folder / f"failed-{os.getpid()}"
        with suppress(FileNotFoundError, FileExistsError), path.open("x", encoding="utf-8") as file:
            file.write(message)

    def claim(self, training: str, rank: int) -> bool:
        """Reserve the recording for this process; tell whether its training is the first and no other has its rank.

        A command may start several trainings. The first is recorded with all of its ranks, which know it by one
        name; of another one no rank is, so that none waits for a rank that does not record.
        """
        process = str(os.getpid())
        return self._first("training", training) == training and self._first(f"rank-{rank}", process) == process

    def _first(self, name: str, content: str) -> str:
        """Write a file unless it is there; return what it holds. Readers never see it half written."""
        mine = self.folder / f".{name}-{os.getpid()}"
        mine.write_text(content, encoding="utf-8")
        try:
            os.link(mine, self.folder / name)
        except FileExistsError:
            return (self.folder / name).read_text(encoding="utf-8")
        finally:
            mine.unlink()
        return content
