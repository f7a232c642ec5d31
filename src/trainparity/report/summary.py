"""From artifacts to the summary: every figure of the report and the rules for withholding one."""

import math
from typing import Any

import numpy as np

from trainparity.environment import Environment
from trainparity.params import REFERENCE, reference_name
from trainparity.records.run import Status
from trainparity.records.timing import Timing
from trainparity.records.verdict import SAME_TRAINING, Verdict
from trainparity.report.artifacts import Artifacts, Run
from trainparity.report.schema import (
    DatasetSummary,
    EnvironmentSummary,
    RunSummary,
    SpeedupSummary,
    StepTime,
    Summary,
    WorkloadSummary,
)
from trainparity.report.speedup import speedup


def build(artifacts: Artifacts) -> Summary:
    """Return the summary of a pipeline's artifacts; equal artifacts give an equal summary."""
    params = artifacts.params
    dataset = params.dataset.model_dump(mode="json")
    return Summary(
        configurations={
            name: _run(run, artifacts.references[params.reference_of(name)], _pair_with_reference(artifacts, name))
            for name, run in artifacts.configurations.items()
        },
        references={name: _run(run, run, None) for name, run in artifacts.references.items()},
        pairs=artifacts.parity.pairs,
        margin=artifacts.parity.margin,
        known_answer=artifacts.known_answer,
        controls=artifacts.controls,
        claims=artifacts.claims,
        curves=artifacts.curves.results if artifacts.curves else {},
        environment=_environment(artifacts.environment),
        parallel=params.parallel,
        workload=WorkloadSummary(**params.workload.model_dump(mode="json")),
        dataset=DatasetSummary(name=dataset.pop("name"), options=dataset),
        global_batch_size=params.train.global_batch_size,
    )


def experiment(status: Status, timing: Timing | None) -> dict[str, str | float | None]:
    """Return the few figures of one run that `dvc exp show` compares between experiments."""
    figures = _figures(timing)
    return {
        "configuration": status.run,
        "status": status.status,
        "device": status.device,
        "loss": _finite(status.loss),
        "step_ms": figures["step_ms"].median if figures else None,
        "samples_per_s": figures.get("samples_per_s"),
        "peak_memory_mib": figures.get("peak_memory_mib"),
        "compile_s": figures.get("compile_s"),
    }


def _run(run: Run, reference: Run, pair: Verdict | None) -> RunSummary:
    """Summarise one run; a reference is its own reference."""
    status = run.status
    withheld = _why_no_speedup(run, reference, pair)
    ratio = None
    if withheld is None and run.timing and reference.timing:
        ratio = SpeedupSummary(**speedup(reference.timing.step_ms, run.timing.step_ms)._asdict())
    return RunSummary(
        status=status.status,
        reason=status.reason,
        remedy=status.remedy,
        device=status.device,
        emulated=status.emulated is not None,
        emulated_what=status.emulated,
        strategy=status.strategy,
        world_size=status.world_size,
        accumulation=status.accumulation_steps,
        precision=status.precision,
        compile=status.compile,
        offload=status.offload,
        steps=status.steps,
        loss=_finite(status.loss),
        reference=reference.status.run,
        reference_device=reference.status.device,
        verdict=pair.verdict if pair else None,
        distance_over_floor=pair.distance_over_floor if pair else None,
        speedup=ratio,
        speedup_withheld=withheld,
        **_figures(run.timing),
    )


def _why_no_speedup(run: Run, reference: Run, pair: Verdict | None) -> str | None:
    """Return why a run's speed-up must not be shown, first of all for want of parity; None if it may be."""
    held_against = reference.status.run
    if run is reference:
        return "it is the reference"
    if run.timing is None:
        return f"{run.status.status}: nothing was measured"
    if run.status.emulated:
        return f"emulated on this machine ({run.status.emulated}): its time says nothing about the real thing"
    if pair is None:
        return f"no pair compares it with {held_against}"
    if pair.verdict not in SAME_TRAINING:
        return f"verdict {pair.verdict}: not shown to be the same training"
    if reference.timing is None:
        return f"{held_against} was {reference.status.status}: there is no time to compare with"
    if reference.status.emulated:
        return f"{held_against} is emulated on this machine ({reference.status.emulated})"
    here, there = run.timing.fingerprint, reference.timing.fingerprint
    if here != there:
        return f"measured in environment {here}, but {held_against} in {there}"
    return _unsteady(run.timing) or _unsteady(reference.timing)


def _unsteady(timing: Timing) -> str | None:
    """Return that a run's steps took too different times to mean anything; None if they did not."""
    if timing.steady:
        return None
    p10, p90 = np.percentile(timing.step_ms, [10, 90])
    kind, _, reference = timing.run.partition("-")
    stage = f"{REFERENCE}@{reference}" if kind == REFERENCE else f"train@{timing.run}"
    return (
        f"the steps of {timing.run} took {p10:.3g} to {p90:.3g} ms (p10-p90): something else used the machine; "
        f"measure again with `dvc repro -s -f {stage}`"
    )


def _pair_with_reference(artifacts: Artifacts, name: str) -> Verdict | None:
    """Return the verdict on a configuration and its reference; None if no pair compares them."""
    return artifacts.parity.against(name, REFERENCE, reference_name(artifacts.params.reference_of(name)))


def _figures(timing: Timing | None) -> dict[str, Any]:
    """Return the fields of RunSummary that come from its timing; none of them where there is none."""
    if timing is None:
        return {}
    p10, median, p90 = (float(value) for value in np.percentile(timing.step_ms, [10, 50, 90]))
    flops_per_s = timing.flops_per_step / (median / 1000) if timing.flops_per_step is not None else None
    peak = timing.peak_flops_per_s
    return {
        "device_name": timing.device_name,
        "step_ms": StepTime(median=median, p10=p10, p90=p90),
        "samples_per_s": timing.global_batch_size / (median / 1000),
        "wait_ms": float(np.median(timing.wait_ms)) if timing.wait_ms else None,
        "peak_memory_mib": timing.memory.peak_mib,
        "memory": timing.memory,
        "warmup_s": timing.warmup_s,
        "compile_s": timing.compile_s,
        "graphs": timing.graphs,
        "graph_breaks": timing.graph_breaks,
        "break_places": timing.break_places,
        "loader_failures": timing.loader_failures,
        "flops_per_s": flops_per_s,
        "peak_flops_fraction": flops_per_s / peak if flops_per_s is not None and peak else None,
        "utilisation": timing.utilisation,
        "num_threads": timing.num_threads,
        "measured_at": timing.date,
        "fingerprint": timing.fingerprint,
    }


def _environment(environment: Environment) -> EnvironmentSummary:
    """Copy the environment, its fingerprint beside the facts that it stands for."""
    return EnvironmentSummary(fingerprint=environment.fingerprint, **environment.model_dump(mode="json"))


def _finite(value: float | None) -> float | None:
    """Return None for a diverged run's NaN or infinity, which JSON has not."""
    return value if value is not None and math.isfinite(value) else None
