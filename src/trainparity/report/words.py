"""What the figures say, in sentences that the console and the page share."""

import math
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from trainparity.records.claims import ClaimReport
from trainparity.records.controls import ControlReport
from trainparity.records.known_answer import KnownAnswer
from trainparity.records.numbers import counted, number
from trainparity.records.run import Status
from trainparity.records.timing import MachineLoad
from trainparity.records.verdict import SAME_TRAINING, Verdict
from trainparity.report.format import joined, moment, percent
from trainparity.report.format import speedup as speedup_text
from trainparity.report.schema import RunSummary, Summary

_WORTH_A_WORD = 0.1
"""Share of the processors, or of their clock rate, from which on a disturbance is told."""


class Note(NamedTuple):
    """Why something is missing from the table, and what to do about it."""

    name: str
    kind: str
    """skipped, failed, different, `cannot judge`, `no speed-up`, `graph breaks` or `loader failed`."""
    text: str
    remedy: str | None


def outcome(run: RunSummary) -> str:
    """Return the word of the verdict column; a run that did not train is never called anything better."""
    if run.status.status != "trained":
        return run.status.status
    return run.verdict.verdict if run.verdict is not None else "not compared"


def speedup_cell(run: RunSummary) -> str:
    """Return what stands in the speed-up column."""
    if run.speedup is None and run.status.status == "trained":
        return "emulated" if run.status.emulated else "withheld"
    return speedup_text(run.speedup)


def disturbance(machine: MachineLoad | None) -> str:
    """Say what else used the machine while a run was timed; empty where nothing worth a word did."""
    if machine is None:
        return ""
    low, high = machine.slowest_mhz or 0.0, machine.fastest_mhz or 0.0
    parts = [
        f"other processes used {percent(machine.others)} of the processors" if machine.others >= _WORTH_A_WORD else "",
        f"{percent(machine.stolen)} went to other virtual machines" if machine.stolen >= _WORTH_A_WORD else "",
        f"the clock went from {number(high)} to {number(low)} MHz" if low < (1 - _WORTH_A_WORD) * high else "",
        f"cores were slowed down for their heat {machine.throttled} times" if machine.throttled else "",
    ]
    return joined([part for part in parts if part])


def imitated(summary: Summary, pair: Verdict) -> bool:
    """Return whether a run of the pair is emulated: its verdict must not look like that of a real one."""
    runs = summary.configurations
    return any(runs[side].status.emulated for side in (pair.left, pair.right) if side in runs)


def parity_sentence(summary: Summary) -> str:
    """Answer the first question: is it still the same training? What differs comes first."""
    runs = summary.configurations.values()
    trained = [run for run in runs if run.status.status == "trained"]
    same = sum(outcome(run) in SAME_TRAINING for run in trained)
    words = [outcome(run) for run in runs]
    others = [f"{count} {word}" for word in _OTHERS if (count := words.count(word))]
    emulated = sum(run.status.emulated is not None for run in trained)
    of = f"{len(trained)} trained configurations" + (f" ({emulated} emulated)" if emulated else "")
    text = f"{same} of {of} are the same training as the reference"
    return f"{joined(others)}; {text}." if "different" in words else f"{text}{'; ' if others else ''}{joined(others)}."


_OTHERS = ("different", "cannot judge", "not compared", "failed", "skipped")


def gain_sentence(summary: Summary) -> str:
    """Answer the second question: what did it gain? Of how many that could be said, and why not of the others."""
    runs = {name: run for name, run in summary.configurations.items() if run.status.status == "trained"}
    if not runs:
        return "No speed-up could be measured: nothing trained."
    gains = {name: run.speedup for name, run in runs.items() if run.speedup}
    if not gains:
        return f"No speed-up could be measured: {_withheld(runs.values())}."
    best = max(gains, key=lambda name: gains[name].ratio)
    text = f"{best}: {speedup_text(gains[best])} the reference's speed"
    if len(gains) > 1:
        gained = gains[best].low > 1
        text = (
            f"the largest gain is {best}'s: {speedup_text(gains[best])}"
            if gained
            else f"none is faster; at best {text}"
        )
    elif gains[best].low <= 1:
        text += ", slower" if gains[best].high < 1 else ", not faster beyond the noise of its steps"
    rest = _withheld(run for run in runs.values() if not run.speedup)
    return f"Speed-up judged of {len(gains)} of {len(runs)} trained configurations: {text}{'; ' if rest else ''}{rest}."


def _withheld(runs: Iterable[RunSummary]) -> str:
    """Say for how many runs no speed-up is shown, by the reason."""
    reasons = [_why_withheld(run) for run in runs]
    return joined([f"{reasons.count(reason)} {reason}" for reason in dict.fromkeys(reasons)])


def _why_withheld(run: RunSummary) -> str:
    if run.status.emulated:
        return "emulated"
    if outcome(run) not in SAME_TRAINING:
        return "withheld as not shown to be the same training"
    return "withheld as not measured under equal conditions"


def break_even(summary: Summary) -> Iterator[str]:
    """Yield for each run with a speed-up that was compiled after how many steps the compilation has paid."""
    for name, run in summary.configurations.items():
        if not (run.speedup and run.timing and run.timing.compile_s and run.figures):
            continue
        saved_ms = run.figures.step_ms.median * (run.speedup.ratio - 1)
        spent = f"{name}: compilation took {number(run.timing.compile_s)} s"
        if saved_ms > 0:
            steps = math.ceil(1000 * run.timing.compile_s / saved_ms)
            yield f"{spent}, which {number(saved_ms)} ms saved at each step pay back after {steps:,} steps."
        else:
            yield f"{spent}, which no step pays back: its median step is no faster."


def controls_sentence(controls: ControlReport | None) -> str:
    """Say how the checker did on loops that are known to be right or wrong."""
    if controls is None:
        return "No controls were recorded (`make controls` does)."
    wrong = [control for control in controls.controls if control.expected]
    right = [control for control in controls.controls if not control.expected]
    trials, trials_right = sum(c.trials for c in wrong), sum(c.trials for c in right)
    caught, named = sum(c.different for c in wrong), sum(c.named for c in wrong)
    misnamed, alarms = sum(c.misnamed for c in wrong), sum(c.different for c in right)
    return (
        f"{caught:,} of {trials:,} wrong runs caught, {named:,} given exactly their cause, {misnamed:,} a wrong one; "
        f"{alarms:,} false alarms in {trials_right:,} right runs ({counted(controls.seeds, 'seed')}, "
        f"{controls.machine}, {moment(controls.date)} UTC)"
    )


def claims_sentence(report: ClaimReport) -> str:
    """Say where and when a study's claims were measured, at which scale and on which data."""
    scale = f"{report.scale} scale" if report.scale else "one scale"
    verdicts = [result.verdict for result in report.results]
    counts = [f"{count} {word}" for word in dict.fromkeys(verdicts) if (count := verdicts.count(word))]
    when = f"; figures up to {moment(report.date)} UTC" if report.date else ""
    return f"study {report.study}: {joined(counts)}; {scale}, data {report.dataset}, {report.environment}{when}"


def known_answer_sentence(answer: KnownAnswer) -> str:
    """Say whether a published result was reproduced before our own verdicts are to be believed."""
    names = joined(list(answer.measured))
    claim = f"article {answer.claim[0]}'s published weights ({answer.claim})"
    between = f"largest difference between them {number(answer.largest_difference)}"
    if answer.reproduced:
        return f"{claim}: reproduced by {names} to {answer.decimals} digits, {between}"
    off = {
        name: max((abs(a - b) for a, b in zip(values, answer.published, strict=False)), default=0.0)
        for name, values in answer.measured.items()
    }
    distances = joined([f"{name} is {number(value)} off" for name, value in off.items()])
    return f"{claim}: NOT reproduced to {answer.decimals} digits: {distances}, {between}"


def environment_sentence(summary: Summary) -> str:
    """Name the machine in one line."""
    environment = summary.environment
    hardware = [f"{environment.processor}, {counted(environment.cores, 'core')}"]
    hardware += [accelerator.name for accelerator in environment.accelerators]
    system = f"{environment.system} {environment.machine}"
    software = f"Python {environment.python}, torch {environment.torch}"
    return "; ".join([*hardware, system, software, f"fingerprint {summary.fingerprint}"])


def dates_sentence(summary: Summary) -> str:
    """Say when the times were measured, which may be long before the report was made."""
    runs = (*summary.configurations.values(), *summary.references.values())
    dates = sorted(run.timing.date for run in runs if run.timing)
    if not dates:
        return "nothing was measured"
    first, last = moment(dates[0]), moment(dates[-1])
    return f"measured {first} UTC" if first == last else f"measured {first} to {last} UTC"


OF_PAIRS = ("different", "cannot judge", "skipped", "failed")
"""Kinds of notes that a page says where it shows the pair."""


def notes(summary: Summary) -> list[Note]:
    """List what the table cannot say: why runs are missing, what differs, why a speed-up is withheld."""
    runs = [*summary.references.values(), *summary.configurations.values()]
    found = [_not_run(run.status) for run in runs if run.status.status != "trained"]
    for name, pair in summary.pairs.items():
        if pair.verdict == "different":
            where = f"first beyond the floor at step {pair.step} in {pair.tensor}"
            why = f"{pair.cause}: {pair.explanation}" if pair.cause else pair.reason or "cause not diagnosed"
            found.append(Note(f"{pair.left} / {pair.right}", "different", f"{where}; {why}", pair.advice))
        if pair.verdict == "cannot judge":
            why = pair.reason or "no reason recorded"
            found.append(Note(f"{pair.left} / {pair.right}", "cannot judge", why, pair.advice))
        if pair.verdict in ("skipped", "failed") and pair.right not in summary.configurations:
            found.append(Note(name, pair.verdict, pair.reason or "no reason recorded", None))
        if not pair.ranks_agree:
            found.append(Note(name, "different", "the ranks of a run did not hold the same parameters", None))
    for name, run in summary.configurations.items():
        if run.status.status == "trained" and run.speedup_withheld:
            found.append(Note(name, "no speed-up", run.speedup_withheld, None))
        if run.timing and run.timing.break_places:
            found.append(Note(name, "graph breaks", "; ".join(run.timing.break_places), None))
        if run.timing and run.timing.loader_failures:
            failures, ranks = run.timing.loader_failures, run.timing.world_size
            what = f"the workers of {failures} of {ranks} ranks; it trained on without them"
            remedy = f"the run said why and what to do; `{again(name)}` lets it say so again"
            found.append(Note(name, "loader failed", what, remedy))
    return found


def remedy(summary: Summary, pair: Verdict) -> str | None:
    """Return what to do about a pair of which a run did not train; None where that is not known."""
    runs = {run.reference: run for run in summary.references.values()} | summary.configurations
    missing = (run.status for side in (pair.left, pair.right) if (run := runs.get(side)) and run.timing is None)
    return next((note.remedy for status in missing if (note := _not_run(status))), None)


def _not_run(status: Status) -> Note:
    """Say why a run is missing, and for a failed one how to repeat it: DVC does not, as its stage succeeded."""
    steps = [status.remedy] if status.remedy else []
    if status.status == "failed":
        steps.append(f"try again with `{again(status.run)}`")
    return Note(status.run, status.status, status.reason or "no reason recorded", "; ".join(steps) or None)


def again(run: str) -> str:
    """Return the command that trains a run again, with DVC and without."""
    return f"trainparity train --again {run}"
