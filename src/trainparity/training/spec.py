"""What the launcher and the worker processes tell each other, as files."""

import hashlib
import json
from pathlib import Path
from typing import Any

from trainparity.params import Configuration, Dataset, Parity, Timing, Train, Workload
from trainparity.placement import Placement
from trainparity.records.base import Record

WORKER = "trainparity.training.worker"
"""The module that each rank executes."""


class TimedBeside(Record):
    """The reference that a run takes turns with while it is timed."""

    configuration: Configuration
    placement: Placement


class RunSpec(Record):
    """Everything that a worker process needs to know; nothing about other configurations."""

    run: str
    """A configuration's name, or `reference-<entry of references>`."""
    workload: Workload
    dataset: Dataset
    train: Train
    parity: Parity
    twins: int = 0
    """Twins to train after the run."""
    traced: bool = True
    """False: it is only trained, for its losses and weights; there is nothing to judge then."""
    timing: Timing | None
    """None: the run is not timed."""
    beside: TimedBeside | None = None
    """None: nothing is timed, or the run is a reference."""
    configuration: Configuration
    placement: Placement
    fingerprint: str
    """Of the environment."""
    code: str
    """Hash of all source files and package versions that the worker processes can come to run."""
    device_name: str
    data: Path
    """Folder that `prepare` wrote."""
    reference: Path | None = None
    """State folder of the reference that windows restart from; None for the reference itself."""
    work: Path
    """Where the run keeps checkpoints and unfinished outputs."""
    step_deadline_s: float | None = None
    """A rank ends when no step has ended for so many seconds; None: what the steps before took decides."""
    position: str = ""
    """Shown beside the progress bar, for example `[3/8]`."""

    def identity(self) -> str:
        """Hash what the run's state depends on: a checkpoint of another identity is not resumed."""
        judging = {"margin", "twins"}  # of which `twins` beside it says what is trained
        without: dict[str, Any] = dict.fromkeys(("position", "work", "timing", "beside", "step_deadline_s"), True)
        without |= {"parity": judging}
        digest = hashlib.sha256(json.dumps(self.model_dump(mode="json", exclude=without), sort_keys=True).encode())
        inputs = [self.data / "manifest.json"]
        if self.reference:
            inputs += [self.reference / "status.json", self.reference / "trace.safetensors"]
        for path in inputs:
            digest.update(path.read_bytes() if path.exists() else b"")
        return digest.hexdigest()[:16]


EXIT_INTERRUPTED = 143
"""A worker's exit code, as a shell reports SIGTERM: the checkpoint is written, and the next run resumes from it."""

EXIT_NO_ROOM = 74
"""A worker's exit code, EX_IOERR of sysexits.h: a file system is full or refuses to be written to."""


ENDED = "ended-{}"
"""An empty file in the work folder: the rank of this number has ended as it should."""

STACKS = "stacks-{}.txt"
"""In the work folder: where the rank of this number was when a step took too long; empty if none did."""

CRASH = "crash-{}.txt"
"""In the work folder: where the rank of this number was when a signal of compiled code ended it; empty if none did."""


class Failure(Record):
    """Why a rank died, in `<work>/failure-<rank>.json`."""

    rank: int
    time: float
    """Seconds since 1970."""
    message: str
    """The exception's type and text, in one line."""
    traceback: str
    """Empty of a mistake that its message names: no code is to be looked into."""
    no_room: bool = False
    """Whether the machine refused to write a file; the exit code says so too, unless the launcher ended the rank."""


class Result(Record):
    """What the launcher needs of a run that trained, in `<work>/result.json`."""

    steps: int
    loss: float
