"""From artifacts to the summary: every figure of the report and the rules for withholding one."""

from trainparity.params import REFERENCE, reference_name
from trainparity.records.numbers import number
from trainparity.records.timing import Timing
from trainparity.records.verdict import SAME_TRAINING, Verdict
from trainparity.report import words
from trainparity.report.artifacts import Artifacts, Run
from trainparity.report.figures import figures_of
from trainparity.report.schema import Chosen, RunSummary, Speedup, Summary
from trainparity.report.speedup import LEAST_PAIRS, speedup


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
        curves=artifacts.curves,
        environment=artifacts.environment,
        fingerprint=artifacts.environment.fingerprint,
        parallel=params.parallel,
        workload=Chosen(**params.workload.model_dump(mode="json")),
        dataset=Chosen(name=dataset.pop("name"), options=dataset),
        global_batch_size=params.train.global_batch_size,
    )


def _run(run: Run, reference: Run, verdict: Verdict | None) -> RunSummary:
    """Summarise one run; a reference is its own reference."""
    withheld = _why_no_speedup(run, reference, verdict)
    ratio = None
    if withheld is None and run.timing:
        ratio = Speedup(**speedup(run.timing.reference_ms, run.timing.step_ms)._asdict())
    return RunSummary(
        status=run.status,
        timing=run.timing,
        verdict=verdict,
        reference=reference.status.run,
        reference_device=reference.status.device,
        figures=figures_of(run.timing) if run.timing else None,
        speedup=ratio,
        speedup_withheld=withheld,
    )


def _why_no_speedup(run: Run, reference: Run, pair: Verdict | None) -> str | None:
    """Return why a run's speed-up must not be shown, parity first; None if it may be shown."""
    compared_with = reference.status.run
    if run is reference:
        return "it is the reference"
    if run.timing is None:
        return f"{run.status.status}: nothing was measured"
    if run.status.emulated:
        return f"emulated on this machine ({run.status.emulated}): its time says nothing about a real one"
    if pair is None:
        return f"no pair compares it with {compared_with}"
    if pair.verdict not in SAME_TRAINING:
        return f"verdict {pair.verdict}: not shown to be the same training"
    if reference.status.emulated:
        return f"{compared_with} is emulated on this machine ({reference.status.emulated})"
    if run.timing.unpaired:
        return f"not timed in turns with {compared_with}: {run.timing.unpaired}"
    if len(run.timing.reference_ms) < LEAST_PAIRS:
        pairs = f"{len(run.timing.reference_ms)} steps were timed in turns with {compared_with}"
        return f"{pairs}; {LEAST_PAIRS} at least (timing.steps) give a 95 % interval"
    return _unsteady(run.timing)


def _unsteady(timing: Timing) -> str | None:
    """Return that a run's steps took too different times to mean anything; None if they did not."""
    if timing.steady:
        return None
    p10, _, p90 = timing.step_percentiles_ms
    return (
        f"the steps of {timing.run}, or those of its reference beside it, scatter too much (its own: {number(p10)} to "
        f"{number(p90)} ms, p10-p90): "
        f"{words.disturbance(timing.machine) or 'something else used the machine'}; "
        f"measure again with `{words.again(timing.run)}`"
    )


def _pair_with_reference(artifacts: Artifacts, name: str) -> Verdict | None:
    """Return the verdict on a configuration and its reference; None if no pair compares them."""
    return artifacts.parity.against(name, REFERENCE, reference_name(artifacts.params.reference_of(name)))
