"""One run from its settings to its outputs: trained, skipped with the reason, or failed with the reason."""

import shutil
import signal
import sys
from pathlib import Path
from typing import Any, Self

from trainparity.environment import Environment, Unavailable, place
from trainparity.launch.code import code_of_run
from trainparity.launch.processes import run_workers
from trainparity.params import COUNTERPART, Configuration, Params, Timing, reference_name
from trainparity.records import layout
from trainparity.records.base import Record, write_text
from trainparity.records.run import Status
from trainparity.training.spec import Failure, Result, RunSpec

WORK = Path(".trainparity/work")
"""Checkpoints and unfinished outputs, one folder a run, named as its outputs are."""


def _work(runs: Path, name: str) -> Path:
    """Return where a run works: beside its outputs if these lie outside of the working directory."""
    return (runs / ".work" if runs.is_absolute() else WORK / runs) / name


def run_reference(
    params: Params, environment: Environment, reference: str, *, runs: Path, data: Path, timed: bool = True
) -> Status:
    """Train an entry of `references` and its twins as the run `reference-<entry>`."""
    name, configuration = reference_name(reference), params.reference_configuration(reference)
    twins = params.parity.twins
    return _run(params, environment, name, configuration, runs=runs, data=data, twins=twins, timed=timed)


def reference_that_is_there(
    params: Params, environment: Environment, reference: str, *, runs: Path, data: Path
) -> Status | None:
    """Return the status of a trained reference that `run_reference` would train again from the same; None if none."""
    name, configuration = reference_name(reference), params.reference_configuration(reference)
    twins = params.parity.twins
    spec = _specify(params, environment, name, configuration, runs=runs, data=data, twins=twins, timed=True)
    path = layout.report(runs, name) / _MADE_FROM
    if isinstance(spec, Unavailable) or not path.exists():
        return None
    same = path.read_text(encoding="utf-8") == _MadeFrom.of(spec).as_json()
    status = Status.read(layout.status(runs, name))
    return status if same and status.status == "trained" else None


def run_configuration(
    params: Params, environment: Environment, name: str, *, runs: Path, data: Path, timed: bool = True
) -> Status:
    """Train a configuration, in windows that start from its reference."""
    configuration = params.configs[name]
    reference = reference_name(params.reference_of(name))
    status = Status.read(layout.status(runs, reference))
    if status.status != "trained":
        reason = f"its reference, {reference}, was {status.status}: {status.reason}"
        return _skip(name, configuration, reason, status.remedy, runs)
    state = layout.state(runs, reference)
    return _run(params, environment, name, configuration, runs=runs, data=data, reference=state, timed=timed)


def run_seed(params: Params, environment: Environment, reference: str, seed: int, *, runs: Path, data: Path) -> Status:
    """Train an entry of `references` from another seed as the run `<entry>-<seed>`, for its learning curve alone."""
    assert params.curves is not None
    params = params.with_reference(reference, train=params.curves.train | {"seed": seed})
    name, configuration = f"{reference}-{seed}", params.reference_configuration(reference)
    return _run(params, environment, name, configuration, runs=runs, data=data, traced=False, timed=False)


def run_picture(params: Params, environment: Environment, *, runs: Path, data: Path) -> Status:
    """Train the model of `picture` as the run `picture`; `params` are those of that training."""
    assert params.picture is not None
    configuration = params.reference_configuration(params.picture.reference)
    return _run(params, environment, "picture", configuration, runs=runs, data=data, traced=False, timed=False)


def run_counterpart(params: Params, environment: Environment, *, runs: Path, data: Path) -> Status:
    """Train the first reference's settings again as the run `counterpart`, in the runtime that this process is in."""
    reference = params.reference_of(COUNTERPART)
    state = layout.state(runs, reference_name(reference))
    configuration = params.reference_configuration(reference)
    return _run(params, environment, COUNTERPART, configuration, runs=runs, data=data, reference=state, timed=False)


def skip_counterpart(params: Params, reason: str, *, runs: Path) -> Status:
    """Record why there is no run `counterpart`."""
    configuration = params.reference_configuration(params.reference_of(COUNTERPART))
    return _skip(COUNTERPART, configuration, reason, None, runs)


def _skip(name: str, configuration: Configuration, reason: str, remedy: str | None, runs: Path) -> Status:
    """Record that a run was not tried, and why."""
    status = _status(name, configuration, status="skipped", reason=reason, remedy=remedy)
    _publish(status, runs, _work(runs, name))
    return status


def _run(
    params: Params,
    environment: Environment,
    name: str,
    configuration: Configuration,
    *,
    runs: Path,
    data: Path,
    reference: Path | None = None,
    twins: int = 0,
    traced: bool = True,
    timed: bool,
) -> Status:
    how = {"reference": reference, "twins": twins, "traced": traced}
    spec = _specify(params, environment, name, configuration, runs=runs, data=data, timed=timed, **how)
    if isinstance(spec, Unavailable):
        return _skip(name, configuration, spec.reason, spec.remedy, runs)
    status = _execute(spec)
    _MadeFrom.of(spec).write(spec.work / "report" / _MADE_FROM)
    _publish(status, runs, spec.work)
    return status


def _specify(
    params: Params,
    environment: Environment,
    name: str,
    configuration: Configuration,
    *,
    runs: Path,
    data: Path,
    timed: bool,
    **how: Any,
) -> RunSpec | Unavailable:
    """Return all that the workers of a run need to know, or why it can't run here; `how` are fields of the spec."""
    placement = place(configuration, params.accelerator, environment)
    if isinstance(placement, Unavailable):
        return placement
    names, workload = list(params.configs), params.workload_of(configuration.compared_with)
    return RunSpec(
        run=name,
        workload=workload,
        dataset=params.dataset,
        train=params.train_of(configuration.compared_with),
        parity=params.parity,
        timing=params.timing if timed else None,
        configuration=configuration,
        placement=placement,
        fingerprint=environment.fingerprint,
        code=code_of_run(workload.name, configuration.strategy).digest,
        device_name=device_name(environment, placement.device),
        data=data,
        work=_work(runs, name),
        position=f"[{names.index(name) + 1}/{len(names)}]" if name in names else "",
        **how,
    )


_MADE_FROM = "made-from.json"


class _MadeFrom(Record):
    """What a run was made from, beside what it measured."""

    identity: str
    """`RunSpec.identity`, which leaves the timed phase out."""
    timing: Timing | None

    @classmethod
    def of(cls, spec: RunSpec) -> Self:
        return cls(identity=spec.identity(), timing=spec.timing)


def _execute(spec: RunSpec) -> Status:
    """Run the workers; an earlier interrupted run of the same identity is resumed."""
    mark, identity = spec.work / "identity", spec.identity()
    if not mark.exists() or mark.read_text() != identity:
        shutil.rmtree(spec.work, ignore_errors=True)
        write_text(mark, identity)
    for old in spec.work.glob("failure-*.json"):
        old.unlink()
    spec.write(spec.work / "spec.json")
    codes = run_workers(spec, spec.work / "spec.json")
    facts = {"device": spec.placement.device, "emulated": spec.placement.emulated}
    if codes:
        reason = _failure(spec.work, codes)
        return _status(spec.run, spec.configuration, status="failed", reason=reason, **facts)
    result = Result.read(spec.work / "result.json")
    return _status(spec.run, spec.configuration, status="trained", steps=result.steps, loss=result.loss, **facts)


def _failure(work: Path, codes: dict[int, int]) -> str:
    """Say why a run failed: the first rank's exception, or how a process died."""
    reports = sorted(work.glob("failure-*.json"), key=lambda path: path.stat().st_mtime_ns)
    for path in reports:
        print(Failure.read(path).traceback, file=sys.stderr)
    if reports:
        first = Failure.read(reports[0])
        return f"rank {first.rank}: {first.message}"
    rank, code = min(codes.items())
    if code < 0:
        hint = " (the system may have run out of memory)" if code == -signal.SIGKILL else ""
        return f"rank {rank} was ended by {signal.Signals(-code).name}{hint}"
    return f"rank {rank} ended with exit code {code} and no message"


def _status(name: str, configuration: Configuration, **facts: object) -> Status:
    settings = configuration.model_dump(include=set(Status.model_fields) - {"device", "run"})
    return Status.model_validate({"run": name, **settings, **facts})


def _publish(status: Status, runs: Path, work: Path) -> None:
    """Move a run's parts, finished, to where the pipeline expects them; of a run that did not train, the status."""
    finished = work
    if status.status != "trained":
        finished = work / "untrained"
        shutil.rmtree(finished, ignore_errors=True)
        status.write(finished / "report" / "untrained.json")  # DVC warns of an empty folder
    status.write(finished / "state" / "status.json")
    (finished / "report").mkdir(exist_ok=True)  # an untimed run reports nothing
    places = {"report": layout.report(runs, status.run), "state": layout.state(runs, status.run)}
    for folder in places.values():
        shutil.rmtree(folder, ignore_errors=True)
    for part, folder in places.items():
        folder.parent.mkdir(parents=True, exist_ok=True)
        (finished / part).rename(folder)
    if status.status != "failed":  # a failed run may resume from its checkpoint when its cause is mended
        shutil.rmtree(work)


def device_name(environment: Environment, device: str) -> str:
    """Return the name of the device that a run is placed on."""
    names = [accelerator.name for accelerator in environment.accelerators if accelerator.kind == device]
    return names[0] if names else environment.processor
