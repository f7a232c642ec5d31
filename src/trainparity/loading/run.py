"""Measure every combination of params.yaml's `loading`, each in a fresh process."""

import multiprocessing
import shutil
import signal
from collections.abc import Callable
from datetime import UTC, datetime
from itertools import product
from pathlib import Path

from trainparity.data.manifest import Manifest
from trainparity.environment import Environment
from trainparity.launch.processes import run_one
from trainparity.launch.runs import device_name
from trainparity.loading.spec import MeasurementSpec, Mode, measurement
from trainparity.params import Loader, Loading, Params
from trainparity.placement import Placement, Unavailable, place
from trainparity.records.loading import LoaderMeasurement, LoadingReport

_CHILD = "trainparity.loading.child"

Progress = Callable[[int, int, LoaderMeasurement], None]
"""Called with how many combinations are measured, of how many, and the last of them."""


def combinations(loading: Loading) -> list[tuple[Mode, Loader]]:
    """Return all combinations that differ: without workers none starts, and nothing is loaded ahead."""
    found: dict[tuple[Mode, Loader], None] = {}
    for mode, pin, workers, start, prefetch in product(
        loading.modes, loading.pin_memory, loading.workers, loading.start_methods, loading.prefetch_factors
    ):
        loader = Loader(workers=workers, pin_memory=pin, deadline_s=loading.deadline_s)
        if workers:
            loader = loader.model_copy(update={"start_method": start, "prefetch_factor": prefetch})
        found[mode, loader] = None
    return list(found)


def measure_all(
    params: Params, loading: Loading, environment: Environment, *, data: Path, work: Path, progress: Progress
) -> LoadingReport:
    """Measure all combinations, one after the other, under the first reference's configuration.

    Args:
        params: The workload and how it is trained.
        loading: What is combined.
        environment: This machine.
        data: Folder that `prepare` wrote.
        work: A folder for the processes' files; it is removed.
        progress: Called after each combination.
    """
    reference = next(iter(params.references))
    configuration, workload, train = (
        params.reference_configuration(reference),
        params.workload_of(reference),
        params.train_of(reference),
    )
    placement = place(configuration, params.accelerator, environment)
    per_epoch = train.steps_per_epoch(Manifest.of(data).samples)
    chosen, found = combinations(loading), []
    for mode, loader in chosen:
        if isinstance(placement, Unavailable):
            found.append(measurement(mode, loader, skipped=placement.reason))
        elif reason := _obstacle(loader, placement, environment):
            found.append(measurement(mode, loader, skipped=reason))
        else:
            spec = MeasurementSpec(
                mode=mode,
                workload=workload,
                train=train,
                configuration=configuration.model_copy(update={"loader": loader}),
                placement=placement,
                data=data,
                warmup=params.timing.warmup_steps,
                batches=min(loading.epochs * per_epoch, loading.max_batches or loading.epochs * per_epoch),
                result=work / "result.json",
            )
            found.append(_measure(spec, work))
        progress(len(found), len(chosen), found[-1])
    device = placement.device if isinstance(placement, Placement) else "cpu"
    return LoadingReport(
        date=datetime.now(UTC).isoformat(timespec="seconds"),
        fingerprint=environment.fingerprint,
        machine=device_name(environment, device),
        cores=environment.cores,
        torch=environment.torch,
        workload=workload.name,
        dataset=params.dataset.name,
        global_batch_size=train.global_batch_size,
        batches_per_epoch=per_epoch,
        measurements=found,
    )


def _obstacle(loader: Loader, placement: Placement, environment: Environment) -> str | None:
    """Say why a loader makes no sense or cannot be had here."""
    if loader.pin_memory and placement.device != "cuda":
        return "pin_memory speeds transfers to an NVIDIA GPU; here is none that trains"
    if loader.start_method and loader.start_method not in multiprocessing.get_all_start_methods():
        return f"{environment.system} can't start a process by {loader.start_method}"
    return None


def _measure(spec: MeasurementSpec, work: Path) -> LoaderMeasurement:
    """Measure one combination in a process of its own, which settings before it can't have touched."""
    shutil.rmtree(work, ignore_errors=True)
    spec.write(work / "spec.json")
    try:
        code = run_one(_CHILD, work / "spec.json", spec.placement.num_threads)
        if code == 0:
            return LoaderMeasurement.read(spec.result)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
    return measurement(spec.mode, spec.configuration.loader, failed=f"the measuring process ended with {how}")
