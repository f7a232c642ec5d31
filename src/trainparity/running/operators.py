"""Both commands run again up to the step where they part, with every operator of that step."""

from collections.abc import Callable, Sequence

from trainparity.attach.session import Plan
from trainparity.records.operators import FirstOperator, OperatorLog
from trainparity.running.command import Command, Runner
from trainparity.running.record import Settings, say
from trainparity.running.session import session
from trainparity.scratch import scratch

_TWINS = 2
"""The fewest twins that say what rounding does to an operator."""

Find = Callable[[OperatorLog, OperatorLog, Sequence[OperatorLog]], FirstOperator | None]


def first_operator(
    runner: Runner, commands: tuple[Command, Command], settings: Settings, step: int, find: Find
) -> FirstOperator | None:
    """Return the first operator of a step whose results differ; None if no such step or operator is found.

    Raises:
        StoppedBySignal: this process got a signal.
    """
    say(f"different from step {step} on: both again up to that step, with its operators")
    logs = [_logged(runner, command, settings, step) for command in commands]
    twins = [_logged(runner, commands[0], settings, step, twin) for twin in range(1, max(_TWINS, settings.twins) + 1)]
    left, right = logs
    if left is None or right is None:
        return None
    return find(left, right, [twin for twin in twins if twin is not None])


def _logged(runner: Runner, command: Command, settings: Settings, step: int, twin: int = 0) -> OperatorLog | None:
    with scratch() as folder:
        plan = Plan(folder=folder, steps=step + 1, interval=1, twin=twin, outside=settings.outside, operators=step)
        with session(plan, float64=settings.float64) as recording:
            runner.run(command, recording.environment(command), folder / "output.txt")
            return recording.operators()
