"""What a run leaves on disk, as typed records: the only thing that training, parity and report share.

    runs/<run>/state/status.json       Status: what ran, or why it did not
    runs/<run>/state/trace.*           the trace (see `trainparity.parity.recording.trace`)
    runs/<run>/state/weights.safetensors
    runs/<run>/report/timing.json      Timing, absent unless trained
    runs/known-answer/result.json      KnownAnswer
    runs/loading.json                  LoadingReport
    runs/environment.json              trainparity.environment.Environment
    runs/<run>/state/evaluation.json   Evaluation, where the workload predicts classes and samples are held out
    reports/parity.json                ParityReport, written by `compare`
    reports/curves.json                CurveReport, likewise, where params.yaml has `curves`
    reports/claims.json                ClaimReport, of a study

`<run>` is a configuration's name or `reference-<entry of references>`.
"""

import csv
import io
import json
import os
import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

Settings = dict[str, str | int | float | bool | None]
UNSTEADY = 3.0
"""Times of which the 90th percentile is beyond so many times the 10th mean nothing: something else ran beside them."""

Verdict = Literal["bitwise", "equivalent", "different", "skipped", "failed"]
SAME_TRAINING: tuple[Verdict, ...] = ("bitwise", "equivalent")


class RecordError(ValueError):
    """A record that is missing or damaged; the message names the file."""


class Record(BaseModel):
    """A JSON file: immutable, read strictly, written whole or not at all, keys in the order of the fields."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    def write(self, path: Path) -> None:
        """Write the record as JSON under a temporary name, then rename it."""
        write_text(path, json.dumps(self.model_dump(mode="json"), indent=1) + "\n")

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read a record.

        Raises:
            RecordError: the file is missing or is not such a record.
        """
        try:
            return cls.model_validate_json(path.read_bytes())
        except FileNotFoundError:
            raise RecordError(f"{path}: no such file; `dvc repro` makes it") from None
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(str(key) for key in first["loc"])
            what = f"{where}: {first['msg']}" if where else first["msg"]
            raise RecordError(f"{path}: not a {cls.__name__} record: {what}") from None


def write_csv(path: Path, header: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Write a CSV file whole or not at all."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    write_text(path, text.getvalue())


def write_text(path: Path, text: str) -> None:
    """Write a text file whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


class Status(Record):
    """What a run was, and whether it trained. Deterministic: no times, no paths."""

    run: str
    status: Literal["trained", "skipped", "failed"]
    reason: str | None = None
    """Why it was skipped or failed."""
    remedy: str | None = None
    """What to do about it."""
    device: str | None = None
    """cpu, mps or cuda; null if it could not be resolved."""
    emulated: str | None = None
    """What this machine only imitates (the timing means nothing then); null if nothing."""
    strategy: str
    world_size: int
    accumulation_steps: int
    precision: str
    compile: str
    offload: str
    steps: int = 0
    """Optimizer steps of the parity phase."""
    loss: float | None = None
    """Mean loss of the parity phase's last ten steps."""

    @property
    def outcome(self) -> str:
        """What became of the run, and why if it did not train."""
        return f"{self.status}: {self.reason}" if self.reason else self.status


class Memory(Record):
    """Peaks of the timed phase in MiB, the largest of the ranks."""

    host_mib: float
    """Resident memory of one process."""
    device_allocated_mib: float | None = None
    device_reserved_mib: float | None = None

    @property
    def peak_mib(self) -> float:
        """The one figure to compare runs by: allocated on the device, else resident on the host."""
        return self.host_mib if self.device_allocated_mib is None else self.device_allocated_mib


class Utilisation(Record):
    """What NVML saw during the timed phase."""

    gpu_percent: float
    temperature_c: float
    """Highest."""
    energy_j: float | None
    """Of the whole device; null where the device does not count it."""


class Timing(Record):
    """The timed phase of one run, apart from its parity phase."""

    run: str
    date: str
    """ISO 8601, UTC, to the second."""
    fingerprint: str
    """Of the environment that it was measured in."""
    device_name: str
    """For example `NVIDIA H100` or the processor's model."""
    world_size: int
    num_threads: int
    """Intra-op threads of each rank."""
    global_batch_size: int
    step_ms: Annotated[list[float], Field(min_length=2)]
    """Wall time of each timed optimizer step, synchronised; the slowest rank's."""
    wait_ms: list[float]
    """The part of each step spent waiting for data."""
    loader_failures: int = 0
    """Ranks whose loading in worker processes failed on the way; their later batches were sliced in memory."""
    warmup_s: float
    """All untimed steps together, compilation included."""
    compile_s: float | None = None
    """Compilation by Dynamo's own account; null if not compiled, or if this torch keeps no such account."""
    graphs: int | None = None
    graph_breaks: int | None = None
    break_places: list[str] = []
    """Why and where each graph broke, as Dynamo words it."""
    memory: Memory
    flops_per_step: float | None = None
    """Floating-point operations of one global batch, forward and backward; null where they can't be counted."""
    peak_flops_per_s: float | None = None
    """Measured: the fastest square matrix product in the run's precision on its device, times ranks."""
    utilisation: Utilisation | None = None

    @property
    def steady(self) -> bool:
        """Whether the machine was the run's alone: the 90th percentile of steps is within `UNSTEADY` times the 10th."""
        deciles = statistics.quantiles(self.step_ms, n=10, method="inclusive")
        return deciles[-1] <= UNSTEADY * deciles[0]


class Worst(Record):
    """The largest distance over floor of one kind of tensor in one pair."""

    kind: Literal["gradient", "update", "weight", "buffer"]
    distance_over_floor: float
    distance: float
    """Relative L2 distance."""
    floor: float
    step: int
    tensor: str
    """A parameter's or buffer's name, or `(all)` for all of them together."""


class PairResult(Record):
    """The verdict on one pair."""

    name: str
    left: str
    right: str
    verdict: Verdict
    reason: str | None = None
    """Why it was skipped, failed or can't be equal; of `different` where it is."""
    cause: str | None = None
    """Of `different`: an identifier of docs/verdict.md, `unknown` where no test proves one."""
    explanation: str | None = None
    """The cause in one sentence."""
    advice: str | None = None
    """What to change, in one sentence."""
    evidence: dict[str, Any] = {}
    """The numbers that prove the cause; of an unknown cause, what was measured."""
    confirmation: str | None = None
    """What a further run with that one factor fixed, or in float64, has shown."""
    weights: Literal["bitwise", "equivalent", "different"] | None = None
    """The verdict on gradients, updates and weights alone, without buffers."""
    distance_over_floor: float | None = None
    """Largest over every kind, tensor and step; null unless judged. Infinity is written as 1e300."""
    calibrated: bool = True
    """Whether the floor was measured on twins; else it is an analytic bound."""
    first_step: int | None = None
    """First optimizer step (from 0) beyond the margin; null if none."""
    first_tensor: str | None = None
    """Where it is beyond first: an activation in forward order, a gradient in backward order, or the update."""
    worst: list[Worst] = []
    ranks_agree: bool = True
    """Whether all ranks of both runs held the same parameters after every step."""


class Comparison(Record):
    """The answer of `trainparity compare`, and its JSON."""

    left: str
    right: str
    verdict: Literal["bitwise", "equivalent", "different", "cannot judge"]
    reason: str | None = None
    """Where it differs, or why it cannot be judged."""
    cause: str | None = None
    explanation: str | None = None
    advice: str | None = None
    step: int | None = None
    """First optimizer step (from 0) beyond the margin."""
    tensor: str | None = None
    distance_over_floor: float | None = None
    margin: float
    calibrated: bool = True
    """Whether twins measured the floor; if not, it is an analytic bound, and so much less to be trusted."""
    weights: str | None = None
    """The verdict on gradients, updates and weights alone, without buffers."""
    steps_compared: int = 0
    evidence: dict[str, Any] = Field(default_factory=dict)

    @property
    def exit_code(self) -> int:
        """0 for the same training, 1 for another, 2 if that cannot be said."""
        return {"bitwise": 0, "equivalent": 0, "different": 1}.get(self.verdict, 2)


class ParityReport(Record):
    """All verdicts, and the distances over steps behind them."""

    margin: float
    pairs: list[PairResult]

    def against(self, run: str, *references: str) -> PairResult | None:
        """Return the pair that holds a run against one of these names of its reference."""
        return next((pair for pair in self.pairs if pair.right == run and pair.left in references), None)


class CurveResult(Record):
    """Do two recipes learn alike? About learning curves over seeds; no proof that a step is the same."""

    verdict: Literal["consistent", "drifted", "cannot judge"]
    reason: str | None = None
    runs: list[int]
    """Runs of each recipe."""
    level: float
    """Chance of calling curves of one recipe `drifted`."""
    p_value: float | None = None
    statistic: float | None = None
    """Largest difference of means over ten parts of the run, in pooled standard deviations over seeds."""
    final: list[float] | None = None
    """Mean loss of the last part."""
    spread: float | None = None
    """Standard deviation of the reference's final loss over seeds."""
    detectable: float | None = None
    """Shift, in standard deviations over seeds, that would have been found with probability 0.8; null: above 8."""

    @property
    def sentence(self) -> str:
        """Say it in one sentence, with the test's power."""
        if self.final is None or self.p_value is None or self.spread is None:
            return self.reason or self.verdict
        power = f"{self.detectable:g}" if self.detectable is not None else "more than 8"
        return (
            f"{self.verdict}: final loss {self.final[0]:.4g} and {self.final[1]:.4g}, "
            f"spread over seeds {self.spread:.2g}, p = {self.p_value:.2g} "
            f"(permutation test, {self.runs[0]} and {self.runs[1]} runs; "
            f"it finds shifts of {power} spreads with probability 0.8)"
        )


class CheckResult(Record):
    """What `trainparity check` says of one candidate."""

    pair: PairResult
    """Against the reference of its own precision."""
    curves: CurveResult | None = None
    """Its precision against fp32, by learning curves over seeds."""

    @property
    def exit_code(self) -> int:
        """0 for the same training, 1 for another, 2 if that cannot be said."""
        if self.pair.verdict == "different" or (self.curves and self.curves.verdict == "drifted"):
            return 1
        unclear = self.pair.verdict in ("skipped", "failed") or (self.curves and self.curves.verdict == "cannot judge")
        return 2 if unclear else 0


class CheckReport(Record):
    """The answer of `trainparity check`."""

    workload: str
    margin: float
    results: list[CheckResult]

    @property
    def exit_code(self) -> int:
        """1 if any candidate is another training, else 2 if any could not be judged, else 0."""
        codes = [result.exit_code for result in self.results]
        return 1 if 1 in codes else max(codes, default=0)


class ControlResult(Record):
    """What the checker said of one control over models and seeds."""

    name: str
    what: str
    """How it comes about, in one sentence."""
    expected: str | None
    """The cause that must be named; null if the loop is right and must not be called different."""
    models: list[str]
    ranks: int
    trials: int
    different: int
    """Trials with the verdict `different`: caught if it is wrong, false alarms if it is right."""
    not_judged: int
    """Trials that could not be judged."""
    causes: dict[str, int]
    """How often each cause was named."""
    smallest: float | None
    """Smallest distance over floor of the trials."""
    largest: float | None

    @property
    def named(self) -> int:
        """Trials that were given exactly their cause."""
        return self.causes.get(self.expected or "", 0)

    @property
    def misnamed(self) -> int:
        """Trials that were given another cause; `unknown` is none."""
        return self.different - self.named - self.causes.get("unknown", 0)


class ControlReport(Record):
    """The negative and positive controls of the checker."""

    date: str
    fingerprint: str
    """Of the environment."""
    machine: str
    torch: str
    seeds: int
    controls: list[ControlResult]

    @property
    def passed(self) -> bool:
        """Every wrong one caught, at least nine in ten named, none misnamed, and no false alarm."""
        wrong = [control for control in self.controls if control.expected]
        caught = all(control.different == control.trials for control in wrong)
        named = sum(control.named for control in wrong) >= 0.9 * sum(control.trials for control in wrong)
        alarms = sum(control.different + control.not_judged for control in self.controls if not control.expected)
        return caught and named and not alarms and not sum(control.misnamed for control in wrong)


class CurveReport(Record):
    """The verdicts on learning curves, by their entry of `curves` in params.yaml."""

    results: dict[str, CurveResult]


class Evaluation(Record):
    """What a trained model scores on samples that were held out of its training."""

    samples: int
    accuracy: float
    precision: float
    """Mean over classes, as is recall; a class that is never predicted counts as 0."""
    recall: float


class ClaimResult(Record):
    """A published figure and what was measured for it."""

    name: str
    statement: str
    published: str
    measured: str | None
    """Null if nothing could be measured; of a claim not measurable here it was measured at another scale."""
    value: float | None = None
    """The same as a number, where it is one."""
    verdict: Literal["confirmed", "not confirmed", "not measurable here"]
    reason: str | None = None
    """Why it is not measurable here."""
    remark: str | None = None
    """What the verdict does not say, for example that the scale is another than the article's."""
    hardware: str | None
    """What the figure was measured on; null where it is not one of time or memory."""


class ClaimReport(Record):
    """All claims of a study."""

    study: str
    scale: str | None
    dataset: str
    """What was trained on; other data than the article's is named as such in the remarks."""
    environment: str
    """The machine in a few words."""
    fingerprint: str
    date: str
    """Of the youngest figure, ISO 8601, UTC; empty if nothing was timed."""
    results: list[ClaimResult]


class KnownAnswer(Record):
    """A published result computed again before our own verdicts are to be believed."""

    claim: str
    published: list[float]
    decimals: int
    measured: dict[str, list[float]]
    """Weights by configuration."""
    largest_difference: float
    """Between the configurations, absolute."""
    reproduced: bool


class LoaderMemory(Record):
    """What loading holds when the workers have loaded all that they may ahead; null where it can't be seen."""

    workers_rss_mib: float
    """Resident memory of all processes that loading started; pages that several share count in each."""
    workers_pss_mib: float | None
    """The same with shared pages split among their processes (Linux)."""
    shared_mib: float | None
    """Shared memory: the batches that wait and, where workers are not forked, the dataset."""
    batch_mib: float
    batches_held: float | None
    """Batches in shared memory, the one in use included."""


class LoaderFigures(Record):
    """What one way to load batches costs, measured in a process of its own."""

    batches: int
    """Timed ones, after the warm-up."""
    first_batch_s: float
    """From asking for the first batch until it is there: worker processes start."""
    step_ms: float
    """Median time from asking for a batch until the training step on it, if there is one, is done."""
    wait_ms: float
    """Median time from asking for a batch until it is there; of `training` with its noise, drawn in this process."""
    epoch_s: float
    """The timed steps together, scaled to one epoch."""
    epoch_wait_s: float
    """The part of it spent waiting for batches."""
    memory: LoaderMemory
    compared: int
    """Batches after the timed ones, held against the same ones sliced in memory."""
    identical: int
    """Those of them that have the same bits."""


class LoaderMeasurement(Record):
    """One combination of loader settings."""

    mode: Literal["training", "loading"]
    workers: int
    start_method: str | None
    """Null without workers, as is `prefetch_factor`."""
    prefetch_factor: int | None
    pin_memory: bool
    status: Literal["ok", "failed", "skipped"]
    reason: str | None = None
    """Why it failed or was skipped."""
    figures: LoaderFigures | None = None
    """Null unless `ok`."""

    @property
    def sentence(self) -> str:
        """Say it in one line."""
        how = f"{self.workers} workers"
        if self.workers:
            how += f" by {self.start_method}, {self.prefetch_factor} batches ahead each"
        how += ", pinned" if self.pin_memory else ""
        if self.figures is None:
            return f"{self.mode}, {how}: {self.status}: {self.reason}"
        figures, memory = self.figures, self.figures.memory.workers_pss_mib or self.figures.memory.workers_rss_mib
        return (
            f"{self.mode}, {how}: {figures.epoch_s:.3g} s an epoch, {figures.epoch_wait_s:.3g} s of it waiting; "
            f"first batch after {figures.first_batch_s:.3g} s; workers hold {memory:.0f} MiB"
        )


class LoadingReport(Record):
    """All combinations of params.yaml's `loading`."""

    date: str
    """ISO 8601, UTC, to the second."""
    fingerprint: str
    """Of the environment."""
    machine: str
    """The device that trained, or the processor."""
    cores: int
    torch: str
    workload: str
    dataset: str
    global_batch_size: int
    batches_per_epoch: int
    measurements: list[LoaderMeasurement]
