"""What `trainparity run` leaves beside the trace of a command that it recorded."""

from pathlib import Path

from trainparity.records.base import Record

NAME = "run.json"
"""In the run's folder."""


class RunRecord(Record):
    """What `trainparity run` recorded; its presence says that the folder is ours to replace."""

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

    @property
    def failure(self) -> str | None:
        """How the command failed; None if it did not, or was stopped before."""
        return f"failed with exit code {self.exit_code} after {self.steps} steps" if self.exit_code else None

    def keep(self, folder: Path) -> None:
        """Write it into the run's folder, as the last file."""
        self.write(folder / NAME)
