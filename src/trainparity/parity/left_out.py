"""The verdict on a model that one of two runs trains, and whose optimizer makes no step in the other one."""

from pathlib import Path

from trainparity.parity.other_parameters import different
from trainparity.parity.recording.idle import IDLE, Idle
from trainparity.parity.recording.trace import Trace
from trainparity.records.numbers import counted
from trainparity.records.verdict import Verdict


def left_out(left: Path, right: Path, names: tuple[str, str], margin: float) -> Verdict | None:
    """Return the verdict on such a model; None where nothing proves that its steps were left out.

    The other optimizers must have gone on beyond where its first step was due: a run may end before that.

    Raises:
        RecordError: what was recorded of the model is missing or damaged.
    """
    idle = [(folder / IDLE).exists() and not (folder / "trace.json").exists() for folder in (left, right)]
    if idle[0] == idle[1]:
        return None
    without, trained = Idle.read((left if idle[0] else right) / IDLE), Trace.load(right if idle[0] else left)
    due = int(trained.arrays["sequence"][0])
    if without.parameters != trained.layout.parameters or without.steps_of_others <= due:
        return None
    there, missing = names[::-1] if idle[0] else names
    others = without.steps_of_others
    return different(
        names,
        margin,
        trained.layout,
        reason=f"an optimizer makes no step in {missing}",
        cause="parameters-not-updated",
        link="update",
        explanation=f"{without.optimizer} makes steps in {there} and none in {missing}, where gradients reach what it "
        f"holds and other optimizers make {counted(others, 'step')}",
        advice="call the step of every optimizer in every iteration",
        evidence={"sequence": due, "steps_of_others": others},
    )
