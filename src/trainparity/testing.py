"""Parity as a test: two functions that train, or two recorded runs, must be the same training."""

import shlex
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from trainparity.integers import integer
from trainparity.parity.compare import compare_folders
from trainparity.parity.record import record
from trainparity.parity.recorder import Recorder
from trainparity.records.verdict import Verdict
from trainparity.scratch import scratch

Record = Callable[..., Recorder]
"""`record(model, optimizer, **options)`, as `trainparity.record` without the folder; every step is traced."""

Training = Callable[[Record], object] | str | Path
"""A function that seeds, trains and calls `record` once before the first step; or the folder of a recorded run."""


class NotSameTraining(AssertionError):
    """Two trainings differ, or it cannot be said; `verdict` says which, where and why."""

    def __init__(self, verdict: Verdict, again: str = "") -> None:
        """Say what is wrong, in the first line what and why: a summary of many tests shows the start of that alone.

        Args:
            verdict: What was found.
            again: The command that says it again, if the runs are kept.
        """
        lines = [f"{verdict.verdict}: {verdict.reason}"]
        if verdict.cause:
            lines = [f"{verdict.verdict}: {verdict.cause}: {verdict.explanation}", f"to change: {verdict.advice}"]
            lines += [verdict.reason] if verdict.reason and verdict.reason != verdict.explanation else []
        lines += [f"to see it again: {again}"] if again else []
        super().__init__("\n".join(lines))
        self.verdict = verdict


def assert_same_training(
    reference: Training,
    other: Training,
    *,
    twins: int = 2,
    margin: float = 16.0,
    folder: str | Path | None = None,
) -> Verdict:
    """Hold two trainings against each other.

    Args:
        reference: What the other is compared with. A function is called once more for each twin, so it must start the
            same way each time: seed in it.
        other: What is judged.
        twins: Further runs of the reference, with weights moved by half an ulp, that measure the noise floor. They are
            made where the two runs differ in a bit.
        margin: The trainings are the same within so many times the noise floor; at least 1.
        folder: Where functions are recorded; by default a temporary folder.

    Returns:
        The verdict, `bitwise` or `equivalent`.

    Raises:
        NotSameTraining: the verdict is another one.
        TypeError: `twins` is no integer, or a training neither a function nor a path.
        ValueError: a function did not call `record` once, or made no step, or a number is out of range.
    """
    twins = integer("twins", twins, 0)
    with ExitStack() as stack:
        place = Path(folder) if folder else stack.enter_context(scratch())
        left, right = _recorded(reference, place / "reference"), _recorded(other, place / "other")
        names = _name(reference, "reference"), _name(other, "other")
        verdict = compare_folders(left, right, margin=margin, names=names)
        if verdict.verdict != "bitwise" and callable(reference):
            for twin in range(1, twins + 1):
                _recorded(reference, left, twin)
            verdict = compare_folders(left, right, margin=margin, names=names)
    if verdict.exit_code:
        kept = folder or not (callable(reference) or callable(other))
        raise NotSameTraining(verdict, shlex.join(["trainparity", "compare", str(left), str(right)]) if kept else "")
    return verdict


def _name(training: Training, role: str) -> str:
    """Return what a verdict calls a run: its folder only where the caller has named it."""
    return role if callable(training) else str(training)


def _recorded(training: Training, folder: Path, twin: int = 0) -> Path:
    """Return the folder of a recorded run; a function is called and recorded first."""
    if not callable(training):
        if not isinstance(training, str | Path):
            raise TypeError(f"a training is a {type(training).__name__}; give a function, or the folder of a run")
        return Path(training)
    with ExitStack() as recorders:
        called: list[Recorder] = []

        def record_here(model: Any, optimizer: Any, **options: Any) -> Recorder:
            how = {"interval": 1, "twin": twin} | options
            called.append(recorders.enter_context(record(model, optimizer, folder, **how)))
            return called[-1]

        training(record_here)
        if len(called) != 1:
            times = "never" if not called else f"{len(called)} times"
            raise ValueError(f"{training} called record {times}; call it once, before the first step")
        if not called[0].step:
            raise ValueError(f"{training} made no step with the optimizer that it gave to record; nothing was trained")
    return folder
