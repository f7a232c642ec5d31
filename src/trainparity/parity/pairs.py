"""Judge all pairs of a pipeline from what its runs left on disk: what the stage `compare` does."""

from functools import cache
from pathlib import Path

from trainparity.params import REFERENCE, Curves, Params, reference_name
from trainparity.parity.curves import judge_runs
from trainparity.parity.detail import describe
from trainparity.parity.noise.floor import NoiseFloor
from trainparity.parity.noise.of_two_runs import of_two_runs
from trainparity.parity.recording.trace import Trace
from trainparity.parity.verdict import Run, judge
from trainparity.parity.worst import worst_of_steps
from trainparity.records import layout
from trainparity.records.base import write_csv
from trainparity.records.curves import CurveReport, CurveResult
from trainparity.records.detail import DETAILS, Detail, write_details
from trainparity.records.run import Status
from trainparity.records.verdict import ParityReport, Verdict


def compare_pairs(params: Params, runs: Path, reports: Path) -> ParityReport:
    """Judge every pair of `params`; write `parity.json`, `distance.csv` and the folder `detail` into `reports`.

    Raises:
        RecordError: a run's status or trace is missing or damaged.
    """

    @cache
    def run(name: str) -> Run:
        return load_run(layout.state(runs, name))

    @cache
    def twins(name: str) -> list[Trace]:
        return load_twins(layout.state(runs, name))

    @cache
    def floor(name: str) -> NoiseFloor | None:
        reference = run(name).trace
        return NoiseFloor(reference, twins(name)) if reference else None

    verdicts: dict[str, Verdict] = {}
    details: dict[str, Detail] = {}
    rows: list[tuple[object, ...]] = []
    for name, pair in params.pairs.items():
        reference = reference_name(params.reference_of(pair.right))
        left, right = run(reference if pair.left == REFERENCE else pair.left), run(pair.right)
        verdicts[name] = judge(left, right, floor(reference), params.parity.margin)
        if verdicts[name].distance_over_floor is not None and left.trace and right.trace:
            noise = floor(reference)
            assert noise is not None
            width = of_two_runs(left.trace, right.trace, noise)
            rows += [(name, *row) for row in worst_of_steps(left.trace, right.trace, width)]
            # Twins are of the reference: of two other runs they measure the floor, and no band around the left one.
            beside = twins(reference) if pair.left == REFERENCE else []
            if found := describe(left.trace, right.trace, noise, beside):
                details[name] = found
    if curves := params.curves:
        results = {name: compare_recipes(curves, name, layout.curves(runs)) for name in curves.pairs}
        CurveReport(results=results).write(reports / "curves.json")
    report = ParityReport(margin=params.parity.margin, pairs=verdicts)
    report.write(reports / "parity.json")
    write_details(reports / DETAILS, details)
    write_csv(reports / "distance.csv", ("pair", "step", "kind", "distance", "floor"), rows)
    return report


def judge_configuration(params: Params, runs: Path, name: str) -> Verdict:
    """Judge one configuration beside its reference, by what these two have left: no other needs to have run.

    Raises:
        RecordError: a run's status or trace is missing or damaged.
    """
    reference = layout.state(runs, reference_name(params.reference_of(name)))
    left, right = load_run(reference), load_run(layout.state(runs, name))
    floor = NoiseFloor(left.trace, load_twins(reference)) if left.trace else None
    return judge(left, right, floor, params.parity.margin)


def compare_recipes(curves: Curves, name: str, runs: Path) -> CurveResult:
    """Judge a pair of recipes by the losses of its seeds, whose runs are in `runs`."""

    def folders(reference: str) -> list[Path]:
        return [layout.state(runs, f"{reference}-{seed}") for seed in range(curves.seeds)]

    pair = curves.pairs[name]
    return judge_runs(folders(pair.left), folders(pair.right))


def load_run(state: Path) -> Run:
    """Read a run's status and, if it trained, its trace."""
    status = Status.read(state / "status.json")
    return Run(status, Trace.load(state) if status.status == "trained" else None)


def load_twins(state: Path) -> list[Trace]:
    """Read the traces of a reference's twins."""
    return [Trace.load(folder) for folder in sorted((state / "twins").iterdir())]
