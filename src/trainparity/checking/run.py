"""Run a workload's reference, twins and candidates, judge them, and confirm what is different."""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from trainparity.bisection import bisect
from trainparity.checking import candidates
from trainparity.environment import Environment
from trainparity.errors import UserError
from trainparity.launch.code import code_of_run
from trainparity.launch.runs import run_configuration, run_reference, run_seed
from trainparity.launch.warm import warm_workers
from trainparity.params import Configuration, Curves, Params, Precision, reference_name
from trainparity.parity.noise.floor import NoiseFloor
from trainparity.parity.pairs import compare_recipes, load_run, load_twins
from trainparity.parity.recording.formats import rounds_more_than_fp32
from trainparity.parity.verdict import Run, judge
from trainparity.pipeline.prepare import prepare
from trainparity.records import layout
from trainparity.records.check import CheckReport
from trainparity.records.curves import CurveResult
from trainparity.records.verdict import SAME_TRAINING, Verdict
from trainparity.second_opinion import confirmed, judged_again, settled, unhidden

Progress = Callable[[str], None]

_RECUT = ("batchnorm-statistics", "loss-normalisation", "buffers-only")
"""Causes that go away when one process cuts its batch as the candidate does."""


def check(checker: "Checker", texts: Sequence[str], *, float64: bool, bisected: bool) -> CheckReport:
    """Judge every candidate and confirm the cause of each difference.

    Args:
        checker: The workload, its settings and where its runs go; `curves` of its settings are those of the candidates
            of another precision than fp32.
        texts: The candidates, such as `ddp:2+gradaccum:2`.
        float64: Whether a difference, and what rounding may hide, is judged in float64 too.
        bisected: Whether the settings of a candidate that is different are tried in smaller sets.

    Raises:
        UserError: The workload's code was edited meanwhile: some of the runs are of other code than their reference.
    """
    workload, results = checker.params.workload.name, dict[str, Verdict]()
    before = code_of_run(workload, "single").files
    checker.prepare()
    with warm_workers():
        for text in texts:
            results[candidates.name(text)] = checker.result(text, float64=float64, bisected=bisected)
            after = code_of_run(workload, "single").files
            if edited := sorted(name for name in {*before, *after} if before.get(name) != after.get(name)):
                raise UserError(f"{', '.join(edited)}: edited while the check ran; run it again")
    return CheckReport(workload=checker.params.workload.name, margin=checker.params.parity.margin, results=results)


@dataclass(frozen=True)
class Checker:
    """Trains and judges the candidates of one check; everything that it writes is in `folder`."""

    params: Params
    folder: Path
    environment: Environment
    progress: Progress
    trained: set[Path] = field(default_factory=set)
    """State folders of what this check has trained for all candidates; those of an earlier one are trained again."""

    @property
    def runs(self) -> Path:
        """Where references and candidates leave their traces."""
        return self.folder / "runs"

    @property
    def data(self) -> Path:
        """Where the dataset is prepared."""
        return self.folder / "data"

    def prepare(self) -> None:
        """Write the dataset."""
        prepare(self.params, self.data, self.folder / "downloads", Path("check"))

    def result(self, text: str, *, float64: bool, bisected: bool) -> Verdict:
        """Judge a candidate: a difference is confirmed, another precision asked whether it learns alike."""
        configuration, found = candidates.parse(text), self.confirmed(text, float64=float64)
        if bisected and found.verdict == "different" and "+" in text:
            which = bisect(text.split("+"), lambda some: self.confirmed("+".join(some), float64=float64).verdict)
            found = found.model_copy(update={"bisection": which})
        if found.verdict not in SAME_TRAINING:
            return found
        if configuration.precision != "fp32" and self._is_reference(configuration):
            reason = "it is its own reference; learning curves say whether it learns as fp32 does: --seeds 5"
            found = found.model_copy(update={"vacuous": True, "reason": reason})
        curves = self.params.curves
        if curves and configuration.precision in curves.pairs:
            found = found.model_copy(update={"curves": self.learns_alike(curves, configuration.precision)})
        return found

    def _is_reference(self, configuration: Configuration) -> bool:
        """Tell whether a configuration computes what the reference of its precision does."""
        reference = self.params.reference_configuration(configuration.precision)
        return configuration == reference.model_copy(update={"reference": configuration.reference})

    def confirmed(self, text: str, *, float64: bool) -> Verdict:
        """Judge a candidate; a difference is judged again, and what a coarse format or the noise floor may hide."""
        configuration = candidates.parse(text)
        found, precision = self.judge(candidates.name(text), configuration), configuration.precision
        if found.verdict == "different":
            found = self.confirm(candidates.name(text), configuration, found, float64=float64)
        elif found.hidden_by_floor and float64:
            found = settled(found, self.in_float64(candidates.name(text), configuration))
        elif float64 and found.may_hide_a_fault(coarse=rounds_more_than_fp32(precision), float64=precision == "fp64"):
            found = unhidden(found, self.in_float64(candidates.name(text), configuration))
        return found

    def run(self, name: str, configuration: Configuration) -> Run:
        """Train a configuration, after its reference if that has not been trained yet."""
        self.progress(f"{name}, compared with {reference_name(configuration.precision)} and its twins")
        self._reference(configuration.precision)
        params = self.params.model_copy(update={"configs": {name: configuration}})
        run_configuration(params, self.environment, name, runs=self.runs, data=self.data, timed=False)
        return load_run(layout.state(self.runs, name))

    def _reference(self, precision: Precision) -> None:
        state = layout.state(self.runs, reference_name(precision))
        if state not in self.trained:
            run_reference(self.params, self.environment, precision, runs=self.runs, data=self.data, timed=False)
            self.trained.add(state)

    def floor(self, precision: Precision) -> tuple[Run, NoiseFloor | None]:
        """Return the reference of a precision and the noise floor that its twins measured."""
        state = layout.state(self.runs, reference_name(precision))
        reference = load_run(state)
        return reference, NoiseFloor(reference.trace, load_twins(state)) if reference.trace else None

    def judge(self, name: str, configuration: Configuration) -> Verdict:
        """Train a configuration and judge it against the reference of its precision."""
        run = self.run(name, configuration)
        reference, floor = self.floor(configuration.precision)
        return judge(reference, run, floor, self.params.parity.margin)

    def confirm(self, name: str, configuration: Configuration, result: Verdict, *, float64: bool) -> Verdict:
        """Judge a difference again: in float64, and with the factor fixed that is said to cause it."""
        if float64 and configuration.precision == "fp32":
            result = judged_again(result, self.in_float64(name, configuration))
        if result.cause == "randomness":
            result = self.without_dropout(name, configuration, result)
        if result.cause in _RECUT and configuration.num_shards > 1:
            result = self.recut(name, configuration, result)
        return result

    def in_float64(self, name: str, configuration: Configuration) -> Verdict:
        """Judge a configuration in float64: rounding is a billion times smaller there, and a fault as large."""
        return self.judge(f"{name}-fp64", configuration.model_copy(update={"precision": "fp64"}))

    def recut(self, name: str, configuration: Configuration, result: Verdict) -> Verdict:
        """Confirm a cause that comes from cutting the batch: one process with the candidate's micro-batches."""
        same = Configuration(
            strategy="single",
            device=configuration.device,
            precision=configuration.precision,
            accumulation_steps=configuration.num_shards,
        )
        left, right = self.run(f"{name}-recut", same), load_run(layout.state(self.runs, name))
        again = judge(left, right, self.floor(configuration.precision)[1], self.params.parity.margin)
        if again.weights is None:
            return confirmed(result, f"one process with the same micro-batches gave no answer: {again.reason}")
        alike = "the weights are equivalent" if again.weights in SAME_TRAINING else "they differ as well"
        return confirmed(result, f"against one process with the same micro-batches {alike}")

    def without_dropout(self, name: str, configuration: Configuration, result: Verdict) -> Verdict:
        """Confirm that dropout is the cause: reference and candidate are trained again without it."""
        train = self.params.train.model_copy(update={"dropout": False})
        checker = replace(
            self, params=self.params.model_copy(update={"train": train}), folder=self.folder / "without-dropout"
        )
        checker.prepare()
        return confirmed(result, f"without dropout they are {checker.judge(name, configuration).verdict}")

    def learns_alike(self, curves: Curves, precision: Precision) -> CurveResult:
        """Compare the learning curves of a precision and of fp32 over seeds."""
        runs = layout.curves(self.runs)
        for seed, each in itertools.product(range(curves.seeds), ("fp32", precision)):
            state = layout.state(runs, f"{each}-{seed}")
            if state in self.trained:  # for another candidate
                continue
            self.progress(f"seed {seed} of {curves.seeds} in {each}")
            status = run_seed(self.params, self.environment, each, seed, runs=runs, data=self.data)
            self.trained.add(state)
            if status.status != "trained":
                break
        return compare_recipes(curves, precision, runs)
