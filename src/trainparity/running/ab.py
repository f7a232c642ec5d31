"""Two commands, each recorded, the first with its twins; and commands between the two."""

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from itertools import count
from pathlib import Path

from trainparity.bisection import Settings as Switched
from trainparity.bisection import bisect
from trainparity.records.verdict import Bisection, Outcome, Verdict
from trainparity.running.command import Command, Runner
from trainparity.running.errors import RunError
from trainparity.running.folder import replacing
from trainparity.running.record import NothingRecorded, Settings, record_main, record_twins, say
from trainparity.running.switches import Switches
from trainparity.second_opinion import confirmed, judged_again, settled, unhidden

_FINER_STEPS = 8
"""As many of runs in a coarse format are looked at in float64 too: a fault in what they compute is in each step."""

OF_COMPUTATION = ("unknown", "forward", "loss-or-targets", "backward", "update")
"""Causes that say where runs part and not why, so that float64 adds something."""


def record_both(
    runner: Runner,
    commands: tuple[Command, Command],
    folder: Path,
    settings: Settings,
    same_bits: Callable[[Path, Path], bool],
) -> tuple[Path, Path]:
    """Record both commands into `folder`; whole or not at all. Twins are made where the runs' bits differ.

    Raises:
        RunError: one of them failed, or made no optimizer step.
        StoppedBySignal: this process got a signal.
    """
    places = folder / "a", folder / "b"
    with ExitStack() as stack:
        unfinished = [stack.enter_context(replacing(place)) for place in places]
        kept = []
        for place, path, command in zip(places, unfinished, commands, strict=True):
            say(f"{place.name.upper()}: {command}")
            found = record_main(runner, command, path, settings, place)
            if found.exit_code:
                raise RunError(
                    f"{place.name.upper()} failed with exit code {found.exit_code}, so neither run is kept: {command}"
                )
            kept.append(found)
        if settings.twins and same_bits(unfinished[0], unfinished[1]):
            say("the runs are equal in every bit: no twins are needed")
        else:
            kept[0] = record_twins(runner, commands[0], unfinished[0], settings, kept[0])
        for path, found in zip(unfinished, kept, strict=True):
            found.keep(path)
    return places


def second_opinion(
    runner: Runner,
    commands: tuple[Command, Command],
    folder: Path,
    settings: Settings,
    found: Verdict,
    judge: Callable[[Path, Path], Verdict],
    *,
    single: bool,
) -> Verdict:
    """Judge both commands in float64, recorded as `folder/float64/a` and `b`, where they are different by `found`.

    A distance that falls with the rounding makes them `equivalent` where rounding is all that float64 takes away: both
    compute in single precision, and neither asks for a coarser format, or compiles.

    Args:
        runner: Runs them.
        commands: Both.
        folder: Where they are recorded as they are.
        settings: How.
        found: The verdict on them as they are.
        judge: Judges two recorded runs.
        single: Whether both compute in single precision.

    Raises:
        StoppedBySignal: this process got a signal.
    """
    say(f"different, by the cause {found.cause}: both again in float64")
    places, more = (folder / "float64" / "a", folder / "float64" / "b"), not single
    try:
        for place, command in zip(places, commands, strict=True):
            with replacing(place) as unfinished:
                kept = record_main(runner, command, unfinished, replace(settings, float64=True), place)
                kept.keep(unfinished)
            if kept.exit_code:
                why = f"{command} failed with exit code {kept.exit_code} there"
                return confirmed(found, f"float64 gave no answer: {why}")
            more |= kept.float64_takes_more
    except RunError as error:
        return confirmed(found, f"float64 gave no answer: {error}")
    return judged_again(found, judge(*places), takes_more=more)


def finer(settings: Settings, found: Verdict) -> Settings:
    """Return how runs are recorded in float64: whole, or a few steps of those that are the same in a coarse format.

    Of those that lie further apart than right runs do, up to the step where they lie furthest.
    """
    if found.hidden_by_floor:
        return replace(settings, float64=True)
    steps = min(settings.steps or _FINER_STEPS, _FINER_STEPS)
    if found.lies_far:
        steps = max(steps, 1 + max(found.worst, key=lambda worst: worst.distance_over_floor).step)
    return replace(settings, float64=True, steps=steps, twins=min(settings.twins, 1))


def judged_in_float64(
    runner: Runner,
    commands: tuple[Command, Command],
    folder: Path,
    settings: Settings,
    found: Verdict,
    judge: Callable[[Path, Path], Verdict],
) -> Verdict:
    """Judge both commands and twins in float64, recorded into `folder`, where rounding may hide what they do.

    Args:
        runner: Runs them.
        commands: Both.
        folder: Where they are recorded.
        settings: How, by `finer`.
        found: The verdict on them as they are: the noise floor hides it, or they are `equivalent` in a coarse format.
        judge: Judges two recorded runs.

    Raises:
        StoppedBySignal: this process got a signal.
    """
    hidden = found.hidden_by_floor
    why = "the noise floor hides what they do:" if hidden else "the same as far as their format tells: a few steps of"
    say(f"{why} both again in float64")
    try:
        places = record_both(runner, commands, folder, settings, lambda *both: judge(*both).verdict == "bitwise")
    except RunError as error:
        again = found.model_copy(update={"verdict": "cannot judge", "reason": str(error)})
    else:
        again = judge(*places)
    return settled(found, again) if hidden else unhidden(found, again)


def switched(
    runner: Runner,
    commands: tuple[Command, Command],
    folder: Path,
    settings: Settings,
    judge: Callable[[Path, Path], Verdict],
) -> Bisection | None:
    """Find which options of the second command make it another training than the first, recorded in `folder/a`.

    Each command between the two is recorded as `folder/between/<number>`. None: they differ in one option at most.

    Raises:
        StoppedBySignal: this process got a signal.
    """
    switches = Switches(*commands)
    if len(switches.names) < 2:
        say(f"they differ in one option: {', '.join(switches.names)}")
        return None
    say(f"different: which of {', '.join(switches.names)}?")
    numbers = count(1)

    def outcome(chosen: Switched) -> Outcome:
        place, command = folder / "between" / str(next(numbers)), switches.command(chosen)
        say(f"{' + '.join(chosen)}: {command}")
        try:
            with replacing(place) as unfinished:
                found = record_main(runner, command, unfinished, settings, place)
                found.keep(unfinished)
        except NothingRecorded as error:
            say(str(error))
            return "failed"
        return "failed" if found.exit_code else judge(folder / "a", place).verdict

    return bisect(switches.names, outcome)
