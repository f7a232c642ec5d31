"""The kinds of runs, each from its settings: a reference, a configuration, a seed, a picture, a counterpart."""

from pathlib import Path
from typing import Any

from trainparity.environment import Environment
from trainparity.launch.code import code_of_run
from trainparity.launch.execution import check_replaceable, execute, made_before, publish, status_of
from trainparity.ownership import owned
from trainparity.params import COUNTERPART, Configuration, Params, reference_name
from trainparity.placement import Placement, Unavailable, place
from trainparity.records import layout
from trainparity.records.run import Status
from trainparity.training.spec import RunSpec, TimedBeside

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
    spec = _specify(params, environment, name, configuration, runs=runs, data=data, timed=timed, twins=twins)
    return _run(spec, name, configuration, runs)


def reference_that_is_there(
    params: Params, environment: Environment, reference: str, *, runs: Path, data: Path
) -> Status | None:
    """Return the status of a trained reference that `run_reference` would train again from the same; None if none."""
    name, configuration = reference_name(reference), params.reference_configuration(reference)
    twins = params.parity.twins
    spec = _specify(params, environment, name, configuration, runs=runs, data=data, twins=twins, timed=True)
    return None if isinstance(spec, Unavailable) else made_before(spec, runs)


def run_configuration(
    params: Params,
    environment: Environment,
    name: str,
    *,
    runs: Path,
    data: Path,
    timed: bool = True,
    position: str = "",
) -> Status:
    """Train a configuration, in windows that start from its reference; `position` is shown beside the progress."""
    configuration = params.configs[name]
    reference = reference_name(params.reference_of(name))
    status = Status.read(layout.status(runs, reference))
    if status.status != "trained":
        reason = f"its reference did not train: {status.ending}"
        return _skip(name, configuration, reason, status.remedy, runs)
    state = layout.state(runs, reference)
    how = {"reference": state, "position": position}
    spec = _specify(params, environment, name, configuration, runs=runs, data=data, timed=timed, **how)
    return _run(spec, name, configuration, runs)


def run_seed(params: Params, environment: Environment, reference: str, seed: int, *, runs: Path, data: Path) -> Status:
    """Train an entry of `references` from another seed as the run `<entry>-<seed>`, for its learning curve alone."""
    assert params.curves is not None
    params = params.with_reference(reference, train=params.curves.train | {"seed": seed})
    name, configuration = f"{reference}-{seed}", params.reference_configuration(reference)
    spec = _specify(params, environment, name, configuration, runs=runs, data=data, timed=False, traced=False)
    return _run(spec, name, configuration, runs)


def run_picture(params: Params, environment: Environment, *, runs: Path, data: Path) -> Status:
    """Train the model of `picture` as the run `picture`; `params` are those of that training."""
    assert params.picture is not None
    configuration = params.reference_configuration(params.picture.reference)
    spec = _specify(params, environment, "picture", configuration, runs=runs, data=data, timed=False, traced=False)
    return _run(spec, "picture", configuration, runs)


def run_counterpart(params: Params, environment: Environment, *, runs: Path, data: Path) -> Status:
    """Train the first reference's settings again as the run `counterpart`, in the runtime that this process is in."""
    reference = params.reference_of(COUNTERPART)
    state = layout.state(runs, reference_name(reference))
    configuration = params.reference_configuration(reference)
    spec = _specify(params, environment, COUNTERPART, configuration, runs=runs, data=data, timed=False, reference=state)
    return _run(spec, COUNTERPART, configuration, runs)


def skip_counterpart(params: Params, reason: str, *, runs: Path) -> Status:
    """Record why there is no run `counterpart`."""
    configuration = params.reference_configuration(params.reference_of(COUNTERPART))
    return _skip(COUNTERPART, configuration, reason, None, runs)


def _run(spec: RunSpec | Unavailable, name: str, configuration: Configuration, runs: Path) -> Status:
    if isinstance(spec, Unavailable):
        return _skip(name, configuration, spec.reason, spec.remedy, runs)
    return execute(spec, runs)


def _skip(name: str, configuration: Configuration, reason: str, remedy: str | None, runs: Path) -> Status:
    """Record that a run was not tried, and why."""
    check_replaceable(name, runs)
    status, work = status_of(name, configuration, status="skipped", reason=reason, remedy=remedy), _work(runs, name)
    with owned(work):
        publish(status, runs, work)
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
    workload = params.workload_of(configuration.compared_with)
    return RunSpec(
        run=name,
        workload=workload,
        dataset=params.dataset,
        train=params.train_of(configuration.compared_with),
        parity=params.parity,
        timing=params.timing if timed else None,
        configuration=configuration,
        placement=placement,
        beside=_beside(params, environment, name, placement) if timed else None,
        fingerprint=environment.fingerprint,
        code=code_of_run(workload.name, configuration.strategy).digest,
        device_name=device_name(environment, placement.device),
        data=data,
        work=_work(runs, name),
        step_deadline_s=params.step_deadline_s,
        **how,
    )


def _beside(params: Params, environment: Environment, name: str, placement: Placement) -> TimedBeside | None:
    """Return the reference that a configuration takes turns with while it is timed; None if its time means nothing."""
    if name not in params.configs or placement.emulated:
        return None
    reference = params.reference_configuration(params.reference_of(name))
    where = place(reference, params.accelerator, environment)
    return None if isinstance(where, Unavailable) else TimedBeside(configuration=reference, placement=where)


def device_name(environment: Environment, device: str) -> str:
    """Return the name of the device that a run is placed on."""
    names = [accelerator.name for accelerator in environment.accelerators if accelerator.kind == device]
    return names[0] if names else environment.processor
