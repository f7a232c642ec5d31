"""What `trainparity run` leaves beside the trace of a command that it recorded."""

from pathlib import Path

from pydantic import Field

from trainparity.records.base import Record
from trainparity.records.numbers import counted

NAME = "run.json"
"""In the run's folder."""


class RunRecord(Record):
    """What `trainparity run` recorded; its presence says which files of the folder are ours to replace."""

    command: str
    steps: int
    """Optimizer steps that were recorded."""
    stopped: bool
    """Whether the recording stopped the script, which had not ended by itself."""
    exit_code: int
    """The command's own; 0 if it was stopped."""
    twins: int
    model: str
    optimizer: str
    beside: list[str]
    """Steps, models and optimizers that were recorded beside the first."""
    not_recorded: list[str]
    """Optimizers that made steps which the trace does not hold."""
    float64_takes_more: bool = False
    """Whether a run in float64 lost more than the rounding of single precision: a coarser format, compiled code."""
    files: list[str] = Field(default_factory=list)
    """Names of all that the recording left in its folder; what lies there besides is the user's, and stays."""

    @property
    def failure(self) -> str | None:
        """How the command failed; None if it did not, or was stopped before."""
        return f"failed with exit code {self.exit_code} after {counted(self.steps, 'step')}" if self.exit_code else None

    def keep(self, folder: Path) -> None:
        """Write it into the run's folder, as the last file; the folder holds nothing but the recording yet."""
        files = sorted({path.name for path in folder.iterdir()} | {NAME})
        self.model_copy(update={"files": files}).write(folder / NAME)
