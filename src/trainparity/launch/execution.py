"""One run from its spec to its outputs: trained, or failed with the reason; by one owner at a time."""

import shutil
from pathlib import Path
from typing import Self

from trainparity.environment import num_nodes
from trainparity.errors import UserError
from trainparity.launch import files_read
from trainparity.launch.deaths import Machine, for_want_of_room, reason
from trainparity.launch.processes import run_workers
from trainparity.ownership import owned
from trainparity.params import Configuration, Timing
from trainparity.records import layout
from trainparity.records.base import Record
from trainparity.records.files import is_free, move_folder, write_text
from trainparity.records.run import Status
from trainparity.training.spec import CRASH, ENDED, STACKS, Result, RunSpec

_MADE_FROM = "made-from.json"


class _MadeFrom(Record):
    """What a run was made from, beside what it measured."""

    identity: str
    """`RunSpec.identity`, which leaves the timed phase out."""
    timing: Timing | None

    @classmethod
    def of(cls, spec: RunSpec) -> Self:
        return cls(identity=spec.identity(), timing=spec.timing)


def execute(spec: RunSpec, runs: Path) -> Status:
    """Train a run and move what it wrote to `runs`; one that another process made from the same meanwhile is taken.

    Raises:
        StoppedBySignal: this process was to end; the next call resumes from the checkpoint.
        UserError: a file system is full or can't be written, or what the run would replace is no run; so does the next
            call then.
    """
    check_replaceable(spec.run, runs)
    with owned(spec.work) as waited:
        if waited and (made := made_before(spec, runs)):
            return made
        status = _train(spec)
        publish(status, runs, spec.work)
    return status


def check_replaceable(run: str, runs: Path) -> None:
    """Refuse a folder in a run's place that no run has left: it would be removed when the run has ended.

    Raises:
        UserError: names it.
    """
    state = layout.state(runs, run)
    if not is_free(state) and not layout.status(runs, run).exists():
        raise UserError(
            f"{state}: holds no {layout.status(runs, run).name}, so it is no run that may be replaced; move it away"
        )


def made_before(spec: RunSpec, runs: Path) -> Status | None:
    """Return the status of a trained run that `execute` would train again from the same; None if there is none."""
    report = layout.report(runs, spec.run)
    if not (_is_of(spec, report) and files_read.as_they_were(report)):
        return None
    status = Status.read(layout.status(runs, spec.run))
    return status if status.status == "trained" else None


def _is_of(spec: RunSpec, report: Path) -> bool:
    """Tell whether what a folder reports was, or is to be, measured of the same run with the same timing."""
    path = report / _MADE_FROM
    return _holds(path, _MadeFrom.of(spec).as_json())


def _holds(path: Path, text: str) -> bool:
    """Tell whether a file is there with just this text; a damaged one may hold any bytes."""
    return path.is_file() and path.read_bytes() == text.encode()


def _train(spec: RunSpec) -> Status:
    """Run the workers; an earlier interrupted run of the same identity, and of the same files read, is resumed."""
    mark, identity = spec.work / "identity", spec.identity()
    if not _holds(mark, identity) or not files_read.as_they_were(spec.work):
        shutil.rmtree(spec.work, ignore_errors=True)
        write_text(mark, identity)
    report = spec.work / "report"
    if not _is_of(spec, report):
        shutil.rmtree(report, ignore_errors=True)  # an earlier attempt's, of which another timing was wanted
        _MadeFrom.of(spec).write(report / _MADE_FROM)
    result = spec.work / "result.json"
    result.unlink(missing_ok=True)
    for pattern in ("failure-*.json", ENDED.format("*"), STACKS.format("*"), CRASH.format("*")):
        for old in spec.work.glob(pattern):
            old.unlink()
    spec.write(spec.work / "spec.json")
    machine = Machine()
    codes = run_workers(spec, spec.work / "spec.json")
    facts = {"device": spec.placement.device, "emulated": spec.placement.emulated}
    if codes or not result.exists():
        ranks = range(spec.configuration.num_processes) if num_nodes() == 1 else ()  # of the others nothing is known
        why = reason(spec.work, codes, ranks, machine)
        if for_want_of_room(spec.work, codes):  # kept as failed, it would stay so when there is room
            raise UserError(f"{spec.run}: {why}; make room, and run it again to resume from the last checkpoint")
        return status_of(spec.run, spec.configuration, status="failed", reason=why, **facts)
    trained = Result.read(result)
    return status_of(spec.run, spec.configuration, status="trained", steps=trained.steps, loss=trained.loss, **facts)


def status_of(name: str, configuration: Configuration, **facts: object) -> Status:
    """Return a run's status: its settings, and what became of it."""
    settings = configuration.model_dump(include=set(Status.model_fields) - {"device", "run"})
    return Status.model_validate({"run": name, **settings, **facts})


def publish(status: Status, runs: Path, work: Path) -> None:
    """Move a run's parts, finished, to where the pipeline expects them; of a run that did not train, the status."""
    finished = work
    if status.status != "trained":
        finished = work / "untrained"
        shutil.rmtree(finished, ignore_errors=True)
        status.write(finished / "report" / "untrained.json")  # DVC warns of an empty folder
    files_read.hand_over(work, finished / "report")
    status.write(finished / "state" / "status.json")
    (finished / "report").mkdir(exist_ok=True)  # an untimed run reports nothing
    report, state = layout.report(runs, status.run), layout.state(runs, status.run)
    (report / _MADE_FROM).unlink(missing_ok=True)  # a stop between the moves must not leave it beside another state
    move_folder(finished / "state", state)
    move_folder(finished / "report", report)
    if status.status == "trained":  # the others may resume from their checkpoint when the cause is mended
        shutil.rmtree(work)
