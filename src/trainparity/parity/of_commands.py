"""What `trainparity run` noted of the commands behind two runs: that they failed, or what was not recorded of them."""

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from trainparity.parity.one_run import given_twice
from trainparity.records.base import RecordError
from trainparity.records.recorded import NAME, RunRecord
from trainparity.records.verdict import Verdict


def of_commands(verdict: Verdict, folders: Sequence[Path]) -> Verdict:
    """Return a verdict with what `trainparity run` says of two commands, or why the folders are not of two runs.

    One that failed has made no more steps than those that are judged; where optimizers of one were not recorded, what
    was recorded proves nothing of the rest.
    """
    left, right = folders
    if verdict.exit_code == 0 and (reason := given_twice(left, right)):
        return verdict.unclear(reason)
    runs = {name: run for name, at in zip((verdict.left, verdict.right), folders, strict=True) if (run := _run_of(at))}
    unseen = [f"{name}: {'; '.join(run.not_recorded)}" for name, run in runs.items() if run.not_recorded]
    if unseen and verdict.verdict != "cannot judge":
        missing = f"NOT recorded: {'. '.join(unseen)}"
        if verdict.exit_code == 0:
            verdict = verdict.unclear(f"what was recorded is {verdict.verdict}, and not all was. {missing}")
        else:
            verdict = verdict.model_copy(update={"reason": ". ".join(filter(None, [verdict.reason, missing]))})
    said = [f"{name} {run.failure}" for name, run in runs.items() if run.failure]
    if not said:
        return verdict
    return verdict.model_copy(update={"reason": "; ".join([*said, *filter(None, [verdict.reason])])})


def _run_of(folder: Path) -> RunRecord | None:
    """Return what `trainparity run` left; None where a loop recorded itself."""
    with suppress(RecordError, OSError):
        return RunRecord.read(folder / NAME)
    return None
